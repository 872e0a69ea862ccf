// mlp backward on Hopper, first kernel: as forward, warpgroups take a tile's gradients through the layers in their
// registers, against weights in shared memory. Hidden values come through shared memory, where the tile's gradients of
// the first layer take their place at last: gradients of weights are products over rows, which lie in many threads.
#pragma once

#include "mlp_backward.cuh"
#include "mlp_warpgroups.cuh"

namespace nerf::cuda {

constexpr int kOutPitch = 24;  // numbers from row to row of the gradients of results, of which 16 are used

template <int kWidth>
struct BackTile : Tile<kWidth, Groups<kWidth>::kCount> {
  static constexpr int kWarps = Groups<kWidth>::kCount * kGroupWarps;
};

template <int kWidth>
int mlp_backward_warpgroups_bytes(const MlpPlan& p) {
  using Shape = BackTile<kWidth>;
  const int tile = Shape::kSize + Shape::kRows * (inputs_pitch(p) + kOutPitch);
  return ((p.resident + p.ring) * kStep * kWidth + tile) * int(sizeof(BFloat16)) +
         Shape::kWarps * 32 * int(sizeof(float2));
}

// Whether the kernel takes the network with so much shared memory; if so, which pieces of weights stay there.
template <int kWidth>
bool place_back_weights(MlpPlan& p, int shared_bytes) {
  p.resident = p.ring = 0;
  const int left = shared_bytes - mlp_backward_warpgroups_bytes<kWidth>(p);
  return left > 0 && place_weights<kWidth>(p, left, p.backward_pieces() + p.input_pieces());
}

#ifdef NERF_WARPGROUPS

// A warp's 16 rows of hidden values, zeros beyond them.
template <int kWidth>
__device__ __forceinline__ void ask_for_kept(BFloat16* to, const MlpPlan& p, int layer, int64_t first) {
  const BFloat16* from = p.kept + layer * p.rows * kWidth;
#pragma unroll
  for (int i = int(threadIdx.x % 32); i < 2 * kWidth; i += 32) {
    const int row = i / (kWidth / 8), column = i % (kWidth / 8) * 8;
    const bool there = first + row < p.rows;
    const BFloat16* number = from + (there ? (first + row) * kWidth + column : 0);
    copy_later(to + row * BackTile<kWidth>::kPitch + column, number, there);
  }
  end_group();
}

// A warp's 16 rows of the gradients of results as 16 columns, on their way from memory: of every fourth row two
// neighboring numbers a lane.
struct GradOut {
  float numbers[4][2];

  __device__ __forceinline__ void ask(const MlpPlan& p, int64_t first) {
    const int lane = int(threadIdx.x % 32), column = lane % 8 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first + lane / 8 + 4 * i;
      const float* number = p.grad_out + row * p.outputs + column;
      numbers[i][0] = row < p.rows && column < p.outputs ? number[0] : 0.0f;
      numbers[i][1] = row < p.rows && column + 1 < p.outputs ? number[1] : 0.0f;
    }
  }
  // Stores them, rounded, and adds them to the lane's part of the last bias's gradient.
  __device__ __forceinline__ void store(BFloat16* to, float2* of_bias, bool fresh) const {
    const int lane = int(threadIdx.x % 32);
    float2 sum = fresh ? make_float2(0.0f, 0.0f) : *of_bias;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<uint32_t*>(to + (lane / 8 + 4 * i) * kOutPitch + lane % 8 * 2) =
          round_pair(numbers[i][0], numbers[i][1]);
      sum.x += numbers[i][0];
      sum.y += numbers[i][1];
    }
    *of_bias = sum;
  }
};

// x = sums where the layer's value is not zero: there ReLU lets no gradient through. kept: from the thread's row and
// column on.
template <int kWidth>
__device__ __forceinline__ void deactivate(uint32_t (&x)[kWidth / 16][4], const float (&sums)[kWidth / 8][4],
                                           const BFloat16* kept) {
#pragma unroll
  for (int i = 0; i < kWidth / kStep; ++i) {
    const uint4 low = *reinterpret_cast<const uint4*>(kept + i * kStep);
    const uint4 high = *reinterpret_cast<const uint4*>(kept + 8 * BackTile<kWidth>::kPitch + i * kStep);
    const uint32_t values[4][2] = {{low.x, high.x}, {low.y, high.y}, {low.z, high.z}, {low.w, high.w}};
#pragma unroll
    for (int w = 0; w < 4; ++w)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float(&sum)[4] = sums[4 * i + w];
        x[2 * i + w / 2][w % 2 * 2 + half] = round_pair(values[w][half] & 0x7fffu ? sum[2 * half] : 0.0f,
                                                        values[w][half] & 0x7fff0000u ? sum[2 * half + 1] : 0.0f);
      }
  }
}

// Gradients of the inputs, of a warp's 16 rows from `first` on. room: shared memory for 16 rows of kChunk numbers, through
// which they go, so that lanes that are neighbors write neighboring numbers.
template <int kWidth>
__device__ __forceinline__ void grad_inputs(const MlpPlan& p, const uint32_t (&x)[kWidth / 16][4],
                                            PieceQueue<kWidth>& weights, int64_t first, float* room) {
  constexpr int kSteps = kWidth / 32, kPitch = kChunk + 4;  // steps of a piece
  static_assert(16 * kPitch * sizeof(float) <= 16 * BackTile<kWidth>::kPitch * sizeof(BFloat16));
  const int lane = int(threadIdx.x % 32);
  for (int start = 0; start < p.grad_columns; start += kChunk) {
    float sums[kChunk / 8][4];
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const uint64_t b = weights.take();
      open_products();
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        multiply_group(sums, x[piece * kSteps + step], b + step * kHalfPiece<kChunk>, piece + step > 0);
      close_products();
      finish_products(sums);
      weights.give_back();
    }
    __syncwarp();  // room is free
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Element e = element_of_c(lane, 2 * half);
        *reinterpret_cast<float2*>(room + e.row * kPitch + n * 8 + e.column) =
            make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
      }
    __syncwarp();
    const int count = p.grad_columns - start < kChunk ? p.grad_columns - start : kChunk;
    const int rows = p.rows - first < 16 ? int(p.rows - first) : 16;
    float* to = p.grad_inputs + first * p.grad_columns + start;
#pragma unroll 4
    for (int row = 0; row < rows; ++row, to += p.grad_columns)
#pragma unroll
      for (int column = lane; column < kChunk; column += 32)
        if (column < count) to[column] = room[row * kPitch + column];
  }
  __syncwarp();  // what is in room was read
}

// Asks for what a warp's 16 rows from `first` on read at once, where it is aligned: the last hidden layer's values, the
// inputs and the gradients of the results.
template <int kWidth>
__device__ __forceinline__ void prefetch_rows(const MlpPlan& p, int64_t first) {
  if (first + 16 > p.rows || threadIdx.x % 32 > 0) return;
  prefetch_run(p.kept + ((p.layers - 1) * p.rows + first) * kWidth, 16 * kWidth * int(sizeof(BFloat16)));
  const auto prefetch = [&](const float* numbers, int columns) {
    if (reinterpret_cast<uintptr_t>(numbers) % 16 == 0)
      prefetch_run(numbers + first * columns, 16 * columns * int(sizeof(float)));
  };
  prefetch(p.inputs, p.inputs_count);
  prefetch(p.grad_out, p.outputs);
}

#endif

template <int kWidth>
__global__ void __launch_bounds__(Groups<kWidth>::kThreadCount, 1) mlp_backward_warpgroups_kernel(MlpPlan p) {
#ifdef NERF_WARPGROUPS
  using Shape = BackTile<kWidth>;
  constexpr int kGroups = Groups<kWidth>::kCount, kPitch = Shape::kPitch, kThreads = Shape::kWarps * 32;
  SHARED_MEMORY(memory);
  __shared__ Barrier full[kMaxPlaces], empty[kMaxPlaces];
  const int places = p.resident + p.ring, warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32);
  if (threadIdx.x == 0) {
    for (int place = 0; place < places; ++place) {
      prepare_barrier(full + place, 1);
      prepare_barrier(empty + place, Shape::kWarps);
    }
    publish_writes();
  }
  __syncthreads();
  const int64_t tiles = (p.rows + Shape::kRows - 1) / Shape::kRows;
  BFloat16* pieces = reinterpret_cast<BFloat16*>(memory);
  PieceQueue<kWidth> weights{p, pieces, full, empty};
  if (warp >= Shape::kWarps) {
    keep_registers<Groups<kWidth>::kLeft>();
    wait_for_earlier();  // which packed the weights
    if (warp == Shape::kWarps && lane == 0) weights.fill((tiles - 1 - blockIdx.x) / gridDim.x + 1);
    return;
  }
  take_registers<Groups<kWidth>::kRegisters>();
  const int pitch = inputs_pitch(p), own = warp * 16;
  BFloat16* kept = pieces + places * weights.kPiece;
  BFloat16* inputs = kept + Shape::kSize;
  BFloat16* grad_out = inputs + Shape::kRows * pitch;
  float2* of_last_bias = reinterpret_cast<float2*>(grad_out + Shape::kRows * kOutPitch);  // [kThreads]
  float* slot = p.slots + int64_t(blockIdx.x) * p.slot_size();
  BFloat16* values = kept + (own + lane / 4) * kPitch + lane % 4 * 8;  // from the thread's row and column on
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first = tile * Shape::kRows + own, row = first + lane / 4;
    const bool fresh = tile == blockIdx.x;
    int layer = p.layers - 1;
    ask_for_kept<kWidth>(kept + own * kPitch, p, layer, first);
    GradOut of_results;
    InputColumns columns;
    of_results.ask(p, first);
    columns.ask(p, first, 0);
    prefetch_rows<kWidth>(p, first + int64_t(gridDim.x) * Shape::kRows);
    of_results.store(grad_out + own * kOutPitch, of_last_bias + threadIdx.x, fresh);
    wait_for_copies<0>();
    meet_first<kThreads>();  // values and gradients are there
    last_weights<kWidth, kGroups>(p, slot, kept, grad_out, kOutPitch, fresh);
    columns.store(inputs + own * pitch, p, 0);
    load_inputs(inputs + own * pitch, p, first, 64);
    float sums[kWidth / 8][4];
    uint32_t x[kWidth / 16][4];
    uint32_t a[4];
    load_matrices(a, grad_out + (own + lane % 16) * kOutPitch + lane / 16 * 8);
    const uint64_t b = weights.take();
    open_products();
    multiply_group(sums, a, b, false);
    close_products();
    finish_products(sums);
    weights.give_back();
    meet_first<kThreads>();  // the last layer's values were read
    while (true) {
      deactivate<kWidth>(x, sums, values);
      __syncwarp();  // the warp's values are free
      if (layer == 0) break;
      --layer;
      ask_for_kept<kWidth>(kept + own * kPitch, p, layer, first);
      multiply_hidden<kWidth>(sums, x, weights, [&](int i) {
        const uint32_t(&c)[4] = x[2 * i], (&d)[4] = x[2 * i + 1];
        BFloat16* to = p.grads + (layer * p.rows + row) * kWidth + lane % 4 * 8 + i * kStep;
        if (row < p.rows) *reinterpret_cast<uint4*>(to) = uint4{c[0], c[2], d[0], d[2]};
        if (row + 8 < p.rows) *reinterpret_cast<uint4*>(to + 8 * kWidth) = uint4{c[1], c[3], d[1], d[3]};
      });
      wait_for_copies<0>();
      __syncwarp();
    }
    grad_inputs<kWidth>(p, x, weights, first, reinterpret_cast<float*>(kept + own * kPitch));
#pragma unroll
    for (int i = 0; i < kWidth / kStep; ++i) {
      const uint32_t(&c)[4] = x[2 * i], (&d)[4] = x[2 * i + 1];
      *reinterpret_cast<uint4*>(values + i * kStep) = uint4{c[0], c[2], d[0], d[2]};
      *reinterpret_cast<uint4*>(values + 8 * kPitch + i * kStep) = uint4{c[1], c[3], d[1], d[3]};
    }
    meet_first<kThreads>();  // all gradients are there
    first_weights<kWidth, kGroups, true>(p, slot, kept, inputs, pitch, fresh);
    meet_first<kThreads>();  // and were read
  }
  // Of the other hidden biases the next kernel writes what its splits have.
  for (int i = int(threadIdx.x); i < (p.layers - 1) * kWidth; i += kThreads) slot[p.slot_bias(1) + i] = 0.0f;
  if (int(threadIdx.x) < kMaxOutputs) {  // of which every eighth lane has two numbers
    float sum = 0.0f;
    for (int t = int(threadIdx.x) / 2; t < kThreads; t += 8) sum += threadIdx.x % 2 ? of_last_bias[t].y : of_last_bias[t].x;
    slot[p.slot_last_bias() + threadIdx.x] = sum;
  }
#endif
}

}  // namespace nerf::cuda
