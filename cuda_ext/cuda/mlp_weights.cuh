// mlp backward, second and third kernel: gradients of the weights between hidden layers, and the sums over blocks and splits.
#pragma once

#include <type_traits>

#include "mlp_plan.cuh"

namespace nerf::cuda {

// Gradients of the weights between hidden layers: grads_{l+1}^T kept_l over a split of the rows. blockIdx.x: the split;
// blockIdx.y: the layer and, of its rows, which kSide of them.
template <int kWidth>
struct WeightTile {
  static constexpr int kSide = kWidth < 128 ? kWidth : 128;
  static constexpr int kMany = kSide / 32, kPairs = kWidth / kColumnWarps / 16;  // of a warp: tiles of 16 rows, 16 columns
  static constexpr int kLeftPitch = kSide + kGap, kRightPitch = kWidth + kGap, kThreadCount = 256;
  static constexpr int kPiece = kStep * (kLeftPitch + kRightPitch);
};

template <int kWidth, int kStages>
constexpr int mlp_weights_bytes() {
  return kStages * WeightTile<kWidth>::kPiece * int(sizeof(BFloat16));
}

template <int kWidth, int kStages>
__global__ void __launch_bounds__(256, 1) mlp_weights_kernel(MlpPlan p) {
  if (!kHasProducts) return;
  using Shape = WeightTile<kWidth>;
  constexpr int kHalves = kWidth / Shape::kSide;
  SHARED_MEMORY(memory);
  BFloat16* ring = reinterpret_cast<BFloat16*>(memory);
  const int layer = int(blockIdx.y) / kHalves, side = int(blockIdx.y) % kHalves * Shape::kSide;
  const BFloat16* left = p.grads + int64_t(layer) * p.rows * kWidth + side;
  const BFloat16* right = p.kept + int64_t(layer) * p.rows * kWidth;
  const int64_t all = (p.rows + kStep - 1) / kStep;
  const int64_t begin = all * blockIdx.x / p.splits, end = all * (blockIdx.x + 1) / p.splits;
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int m0 = warp / kColumnWarps * Shape::kMany * 16, n0 = warp % kColumnWarps * Shape::kPairs * 16;
  const auto ask = [&](int64_t piece) {
    if (piece < end) {
      BFloat16* to = ring + (piece - begin) % kStages * Shape::kPiece;
      constexpr int kLeft = Shape::kSide / 8, kRight = kWidth / 8;
      for (int i = int(threadIdx.x); i < kStep * kLeft; i += Shape::kThreadCount) {
        const int row = i / kLeft, column = i % kLeft * 8;
        const int64_t r = piece * kStep + row;
        copy_later(to + row * Shape::kLeftPitch + column, left + (r < p.rows ? r * kWidth + column : 0), r < p.rows);
      }
      to += kStep * Shape::kLeftPitch;
      for (int i = int(threadIdx.x); i < kStep * kRight; i += Shape::kThreadCount) {
        const int row = i / kRight, column = i % kRight * 8;
        const int64_t r = piece * kStep + row;
        copy_later(to + row * Shape::kRightPitch + column, right + (r < p.rows ? r * kWidth + column : 0), r < p.rows);
      }
    }
    end_group();
  };
  for (int i = 0; i < kStages - 1; ++i) ask(begin + i);
  float sums[Shape::kMany][2 * Shape::kPairs][4] = {};
  uint32_t l[2][Shape::kMany][4], r[2][Shape::kPairs][4];
  const int left_at = (lane / 16 * 8 + lane % 8) * Shape::kLeftPitch + lane / 8 % 2 * 8 + m0;
  const int right_at = kStep * Shape::kLeftPitch + (lane / 8 % 2 * 8 + lane % 8) * Shape::kRightPitch + lane / 16 * 8 + n0;
  const auto take = [&](int64_t piece) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    ask(piece + kStages - 1);
    return ring + (piece - begin) % kStages * Shape::kPiece;
  };
  const auto load = [&](auto step, const BFloat16* x) {
    constexpr int kAt = decltype(step)::value;
#pragma unroll
    for (int m = 0; m < Shape::kMany; ++m)
      load_transposed(l[kAt][m], x + left_at + kAt * 16 * Shape::kLeftPitch + m * 16);
#pragma unroll
    for (int pair = 0; pair < Shape::kPairs; ++pair)
      load_transposed(r[kAt][pair], x + right_at + kAt * 16 * Shape::kRightPitch + pair * 16);
  };
  const auto add = [&](auto step) {
    constexpr int kAt = decltype(step)::value;
#pragma unroll
    for (int pair = 0; pair < Shape::kPairs; ++pair)
#pragma unroll
      for (int m = 0; m < Shape::kMany; ++m) {
        multiply_add(sums[m][2 * pair], l[kAt][m], r[kAt][pair][0], r[kAt][pair][1]);
        multiply_add(sums[m][2 * pair + 1], l[kAt][m], r[kAt][pair][2], r[kAt][pair][3]);
      }
  };
  constexpr std::integral_constant<int, 0> kFirst;
  constexpr std::integral_constant<int, 1> kSecond;
  const BFloat16* x = take(begin);
  load(kFirst, x);
  for (int64_t piece = begin; piece < end; ++piece) {
    load(kSecond, x);
    add(kFirst);
    if (piece + 1 < end) {
      x = take(piece + 1);
      load(kFirst, x);
    }
    add(kSecond);
  }
  float* part = p.parts + (int64_t(blockIdx.x) * (p.layers - 1) + layer) * kWidth * kWidth;
#pragma unroll
  for (int m = 0; m < Shape::kMany; ++m)
#pragma unroll
    for (int n = 0; n < 2 * Shape::kPairs; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Element e = element_of_c(lane, 2 * half);
        float* to = part + int64_t(side + m0 + m * 16 + e.row) * kWidth + n0 + n * 8 + e.column;
        *reinterpret_cast<float2*>(to) = make_float2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
      }
}

constexpr int kAddedAtOnce = 128;  // numbers of a block of add_parts
constexpr int kAsked = 6;          // parts that a warp of it asks for at once

// Adds up what the blocks have, in one order: four neighboring numbers a lane, of which eight warps share the parts.
__global__ void __launch_bounds__(256) add_parts(MlpPlan p, int blocks_of_slots) {
  __shared__ float4 sums[8][32];
  const int lane = int(threadIdx.x % 32), group = int(threadIdx.x / 32);
  const bool slots = int(blockIdx.x) < blocks_of_slots;
  const int64_t i = (int64_t(blockIdx.x) - (slots ? 0 : blocks_of_slots)) * kAddedAtOnce + lane * 4;
  const int64_t square = int64_t(p.width) * p.width, size = slots ? p.slot_size() : (p.layers - 1) * square;
  const int count = slots ? p.blocks : p.splits;
  const float* from = (slots ? p.slots : p.parts) + i;
  const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 sum = none;
  const auto add = [&](const float4& x) { sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w); };
  for (int part = group; i < size && part < count; part += 8 * kAsked) {
    float4 found[kAsked];
#pragma unroll
    for (int k = 0; k < kAsked; ++k)
      found[k] = part + 8 * k < count ? *reinterpret_cast<const float4*>(from + (part + 8 * k) * size) : none;
#pragma unroll
    for (int k = 0; k < kAsked; ++k) add(found[k]);
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group > 0 || i >= size) return;
  for (int g = 1; g < 8; ++g) add(sums[g][lane]);
  const float numbers[4] = {sum.x, sum.y, sum.z, sum.w};
  for (int k = 0; k < 4; ++k) {
    const int64_t place = slots ? p.place_of_slot(i + k) : p.weight_at(1 + int(i / square)) + i % square + k;
    if (place >= 0) p.grad_params[place] = numbers[k];
  }
}

}  // namespace nerf::cuda
