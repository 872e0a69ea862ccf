// mlp backward, first kernel: a block takes the gradients of a tile of rows back through all layers.
#pragma once

#include "mlp_tile.cuh"

namespace nerf::cuda {

template <int kWidth, int kWarps, int kStages>
constexpr int mlp_backward_bytes() {
  return (2 * Tile<kWidth, kWarps>::kSize + kStages * kStep * kWidth) * int(sizeof(BFloat16)) +
         kWarps * kWidth * int(sizeof(float));
}

constexpr uint32_t kOnes = 0x3f803f80;  // two bfloat16 numbers

// A block's own sums: the first tile writes, the following ones add.
__device__ __forceinline__ void add_to_slot(float* place, float value, bool first) {
  *place = first ? value : *place + value;
}

// Products of transposed tiles: sums [16,8 n] += a^T b over the block's rows, for 16 kMany columns of a and 16 kPairs
// of b, whose rows are `pitch` apart. kAlone: of_a [16,8] += a^T too, times ones.
template <int kRows, int kPitch, int kMany, int kPairs, bool kAlone = false>
__device__ __forceinline__ void multiply_transposed(float (&sums)[kMany][2 * kPairs][4], const BFloat16* a,
                                                    const BFloat16* b, int pitch = kPitch,
                                                    float (*of_a)[4] = nullptr) {
  const int lane = int(threadIdx.x % 32);
  const BFloat16* own_a = a + (lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 8;
  const BFloat16* own_b = b + (lane / 8 % 2 * 8 + lane % 8) * pitch + lane / 16 * 8;
#pragma unroll 2
  for (int k = 0; k < kRows; k += 16) {
    uint32_t left[kMany][4];
#pragma unroll
    for (int m = 0; m < kMany; ++m) {
      load_transposed(left[m], own_a + k * kPitch + m * 16);
      if constexpr (kAlone) multiply_add(of_a[m], left[m], kOnes, kOnes);
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      uint32_t right[4];
      load_transposed(right, own_b + k * pitch + pair * 16);
#pragma unroll
      for (int m = 0; m < kMany; ++m) {
        multiply_add(sums[m][2 * pair], left[m], right[0], right[1]);
        multiply_add(sums[m][2 * pair + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Of a lane's four numbers side by side there: asked for before the products that are added to them.
__device__ __forceinline__ float4 ask_for_sums(const float4* place, bool first) {
  return first ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *place;
}
__device__ __forceinline__ float4 add(const float4& before, const float (&sums)[4]) {
  return make_float4(before.x + sums[0], before.y + sums[1], before.z + sums[2], before.w + sums[3]);
}

// Adds the gradient of W_0, 32 of its rows and 16 kPairs columns, to the block's slot. pitch: of the inputs. kBias: and
// that of these rows' biases.
template <int kWidth, int kWarps, int kPairs, bool kBias>
__device__ __forceinline__ void first_weights(const MlpPlan& p, float* slot, const BFloat16* grad,
                                              const BFloat16* inputs, int pitch, int row, int column, bool fresh) {
  using Shape = Tile<kWidth, kWarps>;
  const int lane = int(threadIdx.x % 32);
  float4* own = reinterpret_cast<float4*>(slot) + lane +
                (int64_t(row / 32) * (p.input_columns() / 16) + column / 16) * 128;
  const auto place = [&](int m, int n) { return own + ((n / 2) * 4 + m * 2 + n % 2) * 32; };
  float* bias = slot + p.slot_bias(0) + row + lane / 4;  // of every eighth row
  float4 before[2][2 * kPairs];
  float biases[4], of_bias[2][4] = {};
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) before[m][n] = ask_for_sums(place(m, n), fresh);
#pragma unroll
  for (int i = 0; i < 4; ++i) biases[i] = kBias && !fresh ? bias[8 * i] : 0.0f;
  float sums[2][2 * kPairs][4] = {};
  multiply_transposed<Shape::kRows, Shape::kPitch, 2, kPairs, kBias>(sums, grad + row, inputs + column, pitch, of_bias);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) *place(m, n) = add(before[m][n], sums[m][n]);
  if constexpr (kBias) {
    if (lane % 4 == 0)
#pragma unroll
      for (int i = 0; i < 4; ++i) bias[8 * i] = biases[i] + of_bias[i / 2][i % 2 * 2];
  }
}

// The same for all of W_0: 32 of its rows a warp, up to 64 columns at once.
template <int kWidth, int kWarps, bool kBias = false>
__device__ __forceinline__ void first_weights(const MlpPlan& p, float* slot, const BFloat16* grad,
                                              const BFloat16* inputs, int pitch, bool fresh) {
  const int pairs = int(p.input_columns()) / 16;
  for (int m = int(threadIdx.x / 32); m < kWidth / 32; m += kWarps * kColumnWarps)
    for (int start = 0; start < pairs; start += 4) {
      const auto add = [&](auto count) {
        constexpr int kPairs = decltype(count)::value;
        if (kBias && start == 0)
          first_weights<kWidth, kWarps, kPairs, kBias>(p, slot, grad, inputs, pitch, m * 32, start * 16, fresh);
        else
          first_weights<kWidth, kWarps, kPairs, false>(p, slot, grad, inputs, pitch, m * 32, start * 16, fresh);
      };
      switch (pairs - start) {
        case 1: add(std::integral_constant<int, 1>()); break;
        case 2: add(std::integral_constant<int, 2>()); break;
        case 3: add(std::integral_constant<int, 3>()); break;
        default: add(std::integral_constant<int, 4>());
      }
    }
}

// For the last layer's weights, from the rounded gradients of its results, 16 columns of that pitch.
template <int kWidth, int kWarps>
__device__ __forceinline__ void last_weights(const MlpPlan& p, float* slot, const BFloat16* kept, const BFloat16* grad,
                                             int pitch, bool fresh) {
  using Shape = Tile<kWidth, kWarps>;
  for (int m = int(threadIdx.x / 32); m < kWidth / 16; m += kWarps * kColumnWarps) {
    float4* place = reinterpret_cast<float4*>(slot + p.slot_last()) + m * 32 + threadIdx.x % 32;
    const float4 before = ask_for_sums(place, fresh);
    float of_weights[1][2][4] = {};
    multiply_transposed<Shape::kRows, Shape::kPitch, 1, 1>(of_weights, kept + m * 16, grad, pitch);
    *place = add(before, of_weights[0][0]);
  }
}

// For the last bias.
template <int kWidth, int kWarps>
__device__ __forceinline__ void last_bias(const MlpPlan& p, float* slot, int64_t first, bool fresh) {
  const int lane = int(threadIdx.x % 32);
  for (int o = int(threadIdx.x / 32); o < kMaxOutputs; o += kWarps * kColumnWarps) {
    float sum = 0.0f;
#pragma unroll
    for (int row = lane; row < Tile<kWidth, kWarps>::kRows; row += 32)
      if (o < p.outputs && first + row < p.rows) sum += p.grad_out[(first + row) * p.outputs + o];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (lane == 0) add_to_slot(slot + p.slot_last_bias() + o, sum, fresh);
  }
}

// Gradients of hidden values and inputs, of the first and the last layer's weights, and of the biases.
template <int kWidth, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kColumnWarps * 32, 1) mlp_backward_kernel(MlpPlan p) {
  if (!kHasProducts || (kHasRoom && kWarps == 1)) return;
  using Shape = Tile<kWidth, kWarps>;
  constexpr int kPitch = Shape::kPitch;
  SHARED_MEMORY(memory);
  BFloat16* grad = reinterpret_cast<BFloat16*>(memory);
  BFloat16* kept = grad + Shape::kSize;
  BFloat16* ring = kept + Shape::kSize;
  float* column_sums = reinterpret_cast<float*>(ring + kStages * kStep * kWidth);  // [kWarps,kWidth]
  float* slot = p.slots + int64_t(blockIdx.x) * p.slot_size();
  const int64_t tiles = (p.rows + Shape::kRows - 1) / Shape::kRows;
  const int64_t own_tiles = (tiles - 1 - blockIdx.x) / gridDim.x + 1;
  const int pieces = int(p.backward_pieces()), depth = int(p.first_depth());
  WeightStream<kWidth, Shape::kThreadCount, kStages> weights{p.packed, ring, own_tiles * pieces, pieces};
  weights.start();
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first = tile * Shape::kRows;
    const bool fresh = tile == blockIdx.x;
    ask_for_tile<kWidth, kWarps>(kept, p.kept + int64_t(p.layers - 1) * p.rows * kWidth, first, p.rows);
    load_rounded<kWidth, kWarps>(grad, p.grad_out, p.outputs, kStep, first, p.rows);
    last_bias<kWidth, kWarps>(p, slot, first, fresh);
    typename Shape::Sums sums;
    for (int layer = p.layers - 1; layer >= 0; --layer) {
      const bool last = layer == p.layers - 1;
      multiply<kWidth, kWarps>(sums, grad, weights, last ? 1 : kWidth / kStep);
      wait_for_copies<0>();
      __syncthreads();  // the layer's values are there, and all have read grad
      if (last) {
        last_weights<kWidth, kWarps>(p, slot, kept, grad, kPitch, fresh);
        __syncthreads();
      }
      // Where the layer's value is zero ReLU lets no gradient through.
      float low_sum[Shape::kTiles] = {}, high_sum[Shape::kTiles] = {};
      for_each_pair<kWidth, kWarps>([&](int m, int n, int half, int row, int column) {
        const uint32_t value = *reinterpret_cast<const uint32_t*>(kept + row * kPitch + column);
        const float low = value & 0x7fffu ? sums[m][n][2 * half] : 0.0f;
        const float high = value & 0x7fff0000u ? sums[m][n][2 * half + 1] : 0.0f;
        const uint32_t rounded = round_pair(low, high);
        low_sum[n] += widen_low(rounded);
        high_sum[n] += widen_high(rounded);
        *reinterpret_cast<uint32_t*>(grad + row * kPitch + column) = rounded;
      });
#pragma unroll
      for (int n = 0; n < Shape::kTiles; ++n) {
        for (int distance = 16; distance >= 4; distance /= 2) {
          low_sum[n] += __shfl_xor_sync(~0u, low_sum[n], distance);
          high_sum[n] += __shfl_xor_sync(~0u, high_sum[n], distance);
        }
        if (lane < 4) {
          float* place = column_sums + warp / kColumnWarps * kWidth + warp % kColumnWarps * (kWidth / kColumnWarps) + n * 8;
          place[lane * 2] = low_sum[n];
          place[lane * 2 + 1] = high_sum[n];
        }
      }
      __syncthreads();
      for (int column = int(threadIdx.x); column < kWidth; column += Shape::kThreadCount) {
        float sum = column_sums[column];
        for (int w = 1; w < kWarps; ++w) sum += column_sums[w * kWidth + column];
        add_to_slot(slot + p.slot_bias(layer) + column, sum, fresh);
      }
      if (layer > 0) {
        ask_for_tile<kWidth, kWarps>(kept, p.kept + int64_t(layer - 1) * p.rows * kWidth, first, p.rows);
        store_tile<kWidth, kWarps>(grad, p.grads + int64_t(layer - 1) * p.rows * kWidth, first, p.rows);
      }
    }
    load_rounded<kWidth, kWarps>(kept, p.inputs, p.inputs_count, depth, first, p.rows);
    // Gradient of the inputs: 16 rows a warp, up to 64 columns at once.
    const int pairs = int(p.input_columns()) / 16;
    const BFloat16* packed = p.packed + int64_t(pieces) * kStep * kWidth + lane * 8;
    const BFloat16* own = grad + (warp * 16 + lane % 16) * kPitch + lane / 16 * 8;
    for (int start = 0; start * 16 < p.grad_columns; start += 4) {
      float of_inputs[8][4] = {};
#pragma unroll 4
      for (int step = 0; step < kWidth / 16; ++step) {
        uint32_t a[4];
        load_matrices(a, own + step * 16);
#pragma unroll
        for (int pair = 0; pair < 4; ++pair)
          if ((start + pair) * 16 < p.grad_columns) {
            const uint4 b = *reinterpret_cast<const uint4*>(packed + (step * pairs + start + pair) * 256);
            multiply_add(of_inputs[2 * pair], a, b.x, b.y);
            multiply_add(of_inputs[2 * pair + 1], a, b.z, b.w);
          }
      }
#pragma unroll
      for (int n = 0; n < 8; ++n)
        for (int c = 0; c < 4; ++c) {
          const Element e = element_of_c(lane, c);
          const int64_t row = first + warp * 16 + e.row;
          const int column = start * 16 + n * 8 + e.column;
          if (row < p.rows && column < p.grad_columns) p.grad_inputs[row * p.grad_columns + column] = of_inputs[n][c];
        }
    }
    __syncthreads();  // the inputs are there
    first_weights<kWidth, kWarps>(p, slot, grad, kept, kPitch, fresh);
    __syncthreads();  // grad and kept are free
  }
}

}  // namespace nerf::cuda
