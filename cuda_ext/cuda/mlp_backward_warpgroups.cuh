// mlp backward on Hopper, first kernel: as forward, warpgroups take a tile's gradients through the layers in their
// registers, against weights in shared memory. Hidden values come through shared memory, where the tile's gradients of
// the first layer take their place at last: gradients of weights are products over rows, which lie in many threads.
#pragma once

#include "mlp_backward.cuh"
#include "mlp_warpgroups.cuh"

namespace nerf::cuda {

constexpr int kMaxBackLayers = 4;  // each warp has sums of their biases' gradients in shared memory
constexpr int kOutPitch = 24;      // numbers from row to row of the gradients of results, of which 16 are used

template <int kWidth>
struct BackTile : Tile<kWidth, Groups<kWidth>::kCount> {
  static constexpr int kWarps = Groups<kWidth>::kCount * kGroupWarps;
};

template <int kWidth>
int mlp_backward_warpgroups_bytes(const MlpPlan& p) {
  using Shape = BackTile<kWidth>;
  const int tile = Shape::kSize + Shape::kRows * (inputs_pitch(p) + kOutPitch);
  return ((p.resident + p.ring) * kStep * kWidth + tile) * int(sizeof(BFloat16)) +
         Shape::kWarps * p.layers * kWidth * int(sizeof(float));
}

// Whether the kernel takes the network with so much shared memory; if so, which pieces of weights stay there.
template <int kWidth>
bool place_back_weights(MlpPlan& p, int shared_bytes) {
  p.resident = p.ring = 0;
  const int left = shared_bytes - mlp_backward_warpgroups_bytes<kWidth>(p);
  return p.layers <= kMaxBackLayers && left > 0 && place_weights<kWidth>(p, left, p.backward_pieces());
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

// A warp's 16 rows of the gradients of results, rounded, as 16 columns.
__device__ __forceinline__ void load_grad_out(BFloat16* to, const MlpPlan& p, int64_t first) {
  const int lane = int(threadIdx.x % 32), column = lane % 8 * 2;
#pragma unroll
  for (int row = lane / 8; row < 16; row += 4) {
    const float* number = p.grad_out + (first + row) * p.outputs + column;
    const bool there = first + row < p.rows;
    const float low = there && column < p.outputs ? number[0] : 0.0f;
    const float high = there && column + 1 < p.outputs ? number[1] : 0.0f;
    *reinterpret_cast<uint32_t*>(to + row * kOutPitch + column) = round_pair(low, high);
  }
}

// x = sums where the layer's value is not zero: there ReLU lets no gradient through. kept: from the thread's row and
// column on. In sums, tile by tile, are then the thread's two columns summed over its two rows, not rounded.
template <int kWidth>
__device__ __forceinline__ void deactivate(uint32_t (&x)[kWidth / 16][4], float (&sums)[kWidth / 8][4],
                                           const BFloat16* kept) {
#pragma unroll
  for (int i = 0; i < kWidth / kStep; ++i) {
    const uint4 low = *reinterpret_cast<const uint4*>(kept + i * kStep);
    const uint4 high = *reinterpret_cast<const uint4*>(kept + 8 * BackTile<kWidth>::kPitch + i * kStep);
    const uint32_t values[4][2] = {{low.x, high.x}, {low.y, high.y}, {low.z, high.z}, {low.w, high.w}};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float(&sum)[4] = sums[4 * i + w];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!(values[w][half] & 0x7fffu)) sum[2 * half] = 0.0f;
        if (!(values[w][half] & 0x7fff0000u)) sum[2 * half + 1] = 0.0f;
        x[2 * i + w / 2][w % 2 * 2 + half] = round_pair(sum[2 * half], sum[2 * half + 1]);
      }
      sum[0] += sum[2];
      sum[1] += sum[3];
    }
  }
}

// Of kCount tiles a lane keeps half, the upper ones if it is the upper of two lanes, and adds what the other has there.
template <int kCount, int kTiles>
__device__ __forceinline__ void halve_tiles(float (&sums)[kTiles][4], int distance) {
  const bool upper = threadIdx.x & distance;
#pragma unroll
  for (int t = 0; t < kCount / 2; ++t)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float first = sums[t][c], second = sums[t + kCount / 2][c];
      sums[t][c] = (upper ? second : first) + __shfl_xor_sync(~0u, upper ? first : second, distance);
    }
}

// Adds up over a warp what `deactivate` leaves: of the eight lanes that have the same columns, each ends up with
// neighbouring columns of the layer, which it adds to the warp's sums.
template <int kWidth>
__device__ __forceinline__ void add_columns(float (&sums)[kWidth / 8][4], float* to, bool fresh) {
  const int lane = int(threadIdx.x % 32);
  halve_tiles<kWidth / 8>(sums, 16);
  halve_tiles<kWidth / 16>(sums, 8);
  halve_tiles<kWidth / 32>(sums, 4);
  constexpr int kTiles = kWidth / 64;
  float2* place = reinterpret_cast<float2*>(to + in_layer(lane / 4 * kTiles * 8 + lane % 4 * 2));
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const float2 before = fresh ? make_float2(0.0f, 0.0f) : place[t];
    place[t] = make_float2(before.x + sums[t][0], before.y + sums[t][1]);
  }
}

// Gradients of the inputs, of a warp's 16 rows from `first` on, up to 64 columns at once.
template <int kWidth>
__device__ __forceinline__ void grad_inputs(const MlpPlan& p, const uint32_t (&x)[kWidth / 16][4], int64_t first) {
  const int lane = int(threadIdx.x % 32), pairs = int(p.input_columns()) / 16;
  const BFloat16* packed = p.packed + p.backward_pieces() * kStep * kWidth + lane * 8;
  for (int start = 0; start * 16 < p.grad_columns; start += 4) {
    float sums[8][4] = {};
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step)
#pragma unroll
      for (int pair = 0; pair < 4; ++pair)
        if ((start + pair) * 16 < p.grad_columns) {
          const uint4 b = *reinterpret_cast<const uint4*>(packed + (step * pairs + start + pair) * 256);
          multiply_add(sums[2 * pair], x[step], b.x, b.y);
          multiply_add(sums[2 * pair + 1], x[step], b.z, b.w);
        }
#pragma unroll
    for (int n = 0; n < 8; ++n)
      for (int c = 0; c < 4; ++c) {
        const Element e = element_of_c(lane, c);
        const int column = start * 16 + n * 8 + e.column;
        if (first + e.row < p.rows && column < p.grad_columns)
          p.grad_inputs[(first + e.row) * p.grad_columns + column] = sums[n][c];
      }
  }
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
    publish_barriers();
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
  float* biases = reinterpret_cast<float*>(grad_out + Shape::kRows * kOutPitch);  // [warps,layers,kWidth]
  float* slot = p.slots + int64_t(blockIdx.x) * p.slot_size();
  BFloat16* values = kept + (own + lane / 4) * kPitch + lane % 4 * 8;  // from the thread's row and column on
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first = tile * Shape::kRows + own, row = first + lane / 4;
    const bool fresh = tile == blockIdx.x;
    int layer = p.layers - 1;
    ask_for_kept<kWidth>(kept + own * kPitch, p, layer, first);
    load_grad_out(grad_out + own * kOutPitch, p, first);
    load_inputs(inputs + own * pitch, p, first);
    last_bias<kWidth, kGroups>(p, slot, first - own, fresh);
    wait_for_copies<0>();
    meet_first<kThreads>();  // values and gradients are there
    last_weights<kWidth, kGroups>(p, slot, kept, grad_out, kOutPitch, fresh);
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
      add_columns<kWidth>(sums, biases + (warp * p.layers + layer) * kWidth, fresh);
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
#pragma unroll
    for (int i = 0; i < kWidth / kStep; ++i) {
      const uint32_t(&c)[4] = x[2 * i], (&d)[4] = x[2 * i + 1];
      *reinterpret_cast<uint4*>(values + i * kStep) = uint4{c[0], c[2], d[0], d[2]};
      *reinterpret_cast<uint4*>(values + 8 * kPitch + i * kStep) = uint4{c[1], c[3], d[1], d[3]};
    }
    wait_for_earlier();
    grad_inputs<kWidth>(p, x, first);
    meet_first<kThreads>();  // all gradients are there
    first_weights<kWidth, kGroups>(p, slot, kept, inputs, pitch, fresh);
    meet_first<kThreads>();  // and were read
  }
  for (int i = int(threadIdx.x); i < p.layers * kWidth; i += kThreads) {
    float sum = 0.0f;
    for (int w = 0; w < Shape::kWarps; ++w) sum += biases[w * p.layers * kWidth + i];
    slot[p.slot_bias(0) + i] = sum;
  }
#endif
}

}  // namespace nerf::cuda
