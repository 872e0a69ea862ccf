// mlp backward on Hopper, second kernel: gradients of the weights between hidden layers, and of the biases behind them,
// as products of warpgroups. Both factors lie in shared memory as in global memory, a row of 64 columns after the other,
// but for the order of each row's packs of 16 bytes, so that neither copies nor products wait for each other's banks.
#pragma once

#include "mlp_weights.cuh"

namespace nerf::cuda {

template <int kWidth>
struct WeightGroups {
  static constexpr int kRows = 64, kStages = 4, kThreadCount = 256, kLeft = 128;
  static constexpr int kBlock = kRows * kRowOfBlock, kPiece = kRows * (kLeft + kWidth);  // numbers
  static_assert(kWidth % kLeft == 0 && kLeft == kThreadCount / 128 * 64);
};

constexpr int kBlockAlignment = 1024;  // bytes

template <int kWidth>
constexpr int mlp_weights_warpgroups_bytes() {
  constexpr int kNumbers = WeightGroups<kWidth>::kStages * WeightGroups<kWidth>::kPiece + 2 * kCore;
  return kNumbers * int(sizeof(BFloat16)) + kBlockAlignment;
}

// blockIdx.x: the split of the rows; blockIdx.y: the layer and, of its rows, which kLeft of them.
template <int kWidth>
__global__ void __launch_bounds__(WeightGroups<kWidth>::kThreadCount, 1) mlp_weights_warpgroups_kernel(MlpPlan p) {
#ifdef NERF_WARPGROUPS
  using Shape = WeightGroups<kWidth>;
  constexpr int kHalves = kWidth / Shape::kLeft, kStages = Shape::kStages;
  SHARED_MEMORY(memory);
  const int gap = (kBlockAlignment - int(shared_address(memory) % kBlockAlignment)) % kBlockAlignment;
  BFloat16* ring = reinterpret_cast<BFloat16*>(memory) + gap / int(sizeof(BFloat16));
  const int layer = int(blockIdx.y) / kHalves, side = int(blockIdx.y) % kHalves * Shape::kLeft;
  const BFloat16* left = p.grads + int64_t(layer) * p.rows * kWidth + side;
  const BFloat16* right = p.kept + int64_t(layer) * p.rows * kWidth;
  const int64_t all = (p.rows + Shape::kRows - 1) / Shape::kRows;
  const int64_t begin = all * blockIdx.x / p.splits, end = all * (blockIdx.x + 1) / p.splits;
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  // One factor's rows of a piece.
  const auto copy = [&](BFloat16* to, const BFloat16* from, auto columns, int64_t first) {
    constexpr int kPacks = decltype(columns)::value / 8;
#pragma unroll
    for (int i = int(threadIdx.x); i < Shape::kRows * kPacks; i += Shape::kThreadCount) {
      const int row = i / kPacks, pack = i % kPacks;
      const bool there = first + row < p.rows;
      copy_later(to + pack / 8 * Shape::kBlock + place_in_block(row, pack % 8),
                 from + (there ? (first + row) * kWidth + pack * 8 : 0), there);
    }
  };
  const auto ask = [&](int64_t piece) {
    if (piece < end) {
      BFloat16* to = ring + (piece - begin) % kStages * Shape::kPiece;
      copy(to, left, std::integral_constant<int, Shape::kLeft>(), piece * Shape::kRows);
      copy(to + Shape::kRows * Shape::kLeft, right, std::integral_constant<int, kWidth>(), piece * Shape::kRows);
    }
    end_group();
  };
  for (int i = 0; i < kStages - 2; ++i) ask(begin + i);
  BFloat16* ones = ring + kStages * Shape::kPiece;
  if (int(threadIdx.x) < 2 * kCore) ones[threadIdx.x] = narrow<BFloat16>(1.0f);
  float sums[kWidth / 8][4] = {}, of_bias[1][4] = {};
  for (int64_t piece = begin; piece < end; ++piece) {
    wait_for_copies<kStages - 3>();
    publish_writes();
    __syncthreads();  // the piece is there, and the products of the one before the last have ended
    ask(piece + kStages - 2);
    const uint32_t at = shared_address(ring + (piece - begin) % kStages * Shape::kPiece);
    const uint64_t a = describe_blocks(at + warp / 4 * Shape::kBlock * int(sizeof(BFloat16)), Shape::kRows);
    const uint64_t b = describe_blocks(at + Shape::kRows * Shape::kLeft * int(sizeof(BFloat16)), Shape::kRows);
    open_products();
#pragma unroll
    for (int step = 0; step < Shape::kRows / 16; ++step) {
      multiply_stored(sums, a + step * kBlockStep, b + step * kBlockStep);
      multiply_stored(of_bias, a + step * kBlockStep, describe_cores(shared_address(ones)));
    }
    close_products();
    wait_for_products<1>();  // those of the piece before
  }
  finish_products(sums);
  finish_products(of_bias);
  float* bias = p.slots + int64_t(blockIdx.x) * p.slot_size() + p.slot_bias(layer + 1) + side + warp * 16 + lane / 4;
  if (lane % 4 == 0) {
    bias[0] = of_bias[0][0];
    bias[8] = of_bias[0][2];
  }
  float* part = p.parts + (int64_t(blockIdx.x) * (p.layers - 1) + layer) * kWidth * kWidth;
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Element e = element_of_c(lane, 2 * half);
      float* to = part + int64_t(side + warp * 16 + e.row) * kWidth + n * 8 + e.column;
      *reinterpret_cast<float2*>(to) = make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
    }
#endif
}

}  // namespace nerf::cuda
