// mlp forward: a block takes a tile of rows through all layers, its values in place. Tiles of which no row is needed are found
// before, and not taken.
#pragma once

#include "mlp_tile.cuh"

namespace nerf::cuda {

template <int kWidth, int kWarps, int kStages>
constexpr int mlp_forward_bytes() {
  return (Tile<kWidth, kWarps>::kSize + kStages * kStep * kWidth) * int(sizeof(BFloat16));
}

template <int kWidth, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kColumnWarps * 32, 1) mlp_forward_kernel(MlpPlan p) {
  if (!kHasProducts) return;
  using Shape = Tile<kWidth, kWarps>;
  SHARED_MEMORY(memory);
  BFloat16* x = reinterpret_cast<BFloat16*>(memory);
  const int64_t tiles = p.needed_tiles ? *p.needed_count : (p.rows + Shape::kRows - 1) / Shape::kRows;
  if (int64_t(blockIdx.x) >= tiles) return;
  const int64_t own_tiles = (tiles - 1 - blockIdx.x) / gridDim.x + 1;
  const int pieces = int(p.forward_pieces());
  WeightStream<kWidth, Shape::kThreadCount, kStages> weights{p.packed, x + Shape::kSize, own_tiles * pieces, pieces};
  weights.start();
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first = (p.needed_tiles ? p.needed_tiles[tile] : tile) * Shape::kRows;
    load_rounded<kWidth, kWarps>(x, p.inputs, p.inputs_count, int(p.first_depth()), first, p.rows);
    typename Shape::Sums sums;
    for (int layer = 0; layer < p.layers; ++layer) {
      multiply<kWidth, kWarps>(sums, x, weights, int(layer == 0 ? p.first_depth() : kWidth) / kStep);
      const float* bias = p.params + p.bias_at(layer);
      __syncthreads();  // all have read x
      for_each_pair<kWidth, kWarps>([&](int m, int n, int half, int row, int column) {
        const float low = sums[m][n][2 * half] + bias[column], high = sums[m][n][2 * half + 1] + bias[column + 1];
        *reinterpret_cast<uint32_t*>(x + row * Shape::kPitch + column) = round_pair(relu(low), relu(high));
      });
      if (p.kept != nullptr) {
        __syncthreads();
        store_tile<kWidth, kWarps>(x, p.kept + int64_t(layer) * p.rows * kWidth, first, p.rows);
      }
    }
    __syncthreads();
    // The last layer: 16 rows a warp.
    float last[2][4] = {};
    const BFloat16* packed = p.packed + int64_t(pieces) * kStep * kWidth + lane * 4;
    const BFloat16* own = x + (warp * 16 + lane % 16) * Shape::kPitch + lane / 16 * 8;
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step) {
      uint32_t a[4];
      load_matrices(a, own + step * 16);
      const uint2 b = *reinterpret_cast<const uint2*>(packed + step * 128);
      multiply_add(last[step % 2], a, b.x, b.y);
    }
    const float* bias = p.params + p.bias_at(p.layers);
    for (int c = 0; c < 4; ++c) {
      const Element e = element_of_c(lane, c);
      const int64_t row = first + warp * 16 + e.row;
      if (row >= p.rows || e.column >= p.outputs) continue;
      const bool needed = !p.needed || p.needed[row] != 0.0f;
      p.out[row * p.outputs + e.column] = needed ? last[0][c] + last[1][c] + bias[e.column] : 0.0f;
    }
    __syncthreads();  // x is free
  }
}

}  // namespace nerf::cuda
