// A tile of rows in shared memory: products with weights that stream by, and moves to and from global memory. A warp makes 64 rows of
// a quarter of the columns.
#pragma once

#include <type_traits>

#include "mlp_plan.cuh"

namespace nerf::cuda {

// Pieces of weights on their way to a ring in shared memory, again and again in the same order.
template <int kWidth, int kThreadCount, int kStages>
struct WeightStream {
  static constexpr int kPiece = kStep * kWidth;  // numbers
  const BFloat16* source;
  BFloat16* ring;
  int64_t left;         // pieces not yet asked for
  int pieces, next = 0;  // of one pass; the next one to ask for
  int asked = 0, used = 0;

  __device__ void ask() {
    if (left > 0) {
      const BFloat16* from = source + int64_t(next) * kPiece;
      BFloat16* to = ring + asked % kStages * kPiece;
      for (int i = int(threadIdx.x) * 8; i < kPiece; i += kThreadCount * 8) copy_later(to + i, from + i);
      next = next + 1 == pieces ? 0 : next + 1;
      ++asked;
      --left;
    }
    end_group();
  }
  __device__ void start() {
    for (int i = 0; i < kStages - 1; ++i) ask();
  }
  // The next piece, when it is there for all threads; asks for one more.
  __device__ const BFloat16* take() {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    ask();
    return ring + used++ % kStages * kPiece;
  }
};

// A block's tile: kWarps * 64 rows of kWidth columns.
template <int kWidth, int kWarps>
struct Tile {
  static constexpr int kRows = kWarps * kWarpRows, kThreadCount = kWarps * kColumnWarps * 32;
  static constexpr int kTiles = kWidth / kColumnWarps / 8;  // of 8 columns, in a warp
  static constexpr int kPitch = kWidth + kGap;              // numbers from row to row
  static constexpr int kSize = kRows * kPitch;
  using Sums = float[kWarpRows / 16][kTiles][4];
};

// sums = x W for the first `pieces` * 32 columns of x.
template <int kWidth, int kWarps, class Stream>
__device__ __forceinline__ void multiply(typename Tile<kWidth, kWarps>::Sums& sums, const BFloat16* x, Stream& weights,
                                         int pieces) {
  using Shape = Tile<kWidth, kWarps>;
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const BFloat16* own = x + (warp / kColumnWarps * kWarpRows + lane % 16) * Shape::kPitch + lane / 16 * 8;
#pragma unroll
  for (int m = 0; m < kWarpRows / 16; ++m)
#pragma unroll
    for (int n = 0; n < Shape::kTiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[m][n][c] = 0.0f;
  const int offset = (warp % kColumnWarps * (Shape::kTiles / 2) * 32 + lane) * 8;
  uint32_t a[2][kWarpRows / 16][4];
  uint4 b[2][Shape::kTiles / 2];
  const auto load = [&](auto step, const BFloat16* packed, int piece) {
    constexpr int kAt = decltype(step)::value;
#pragma unroll
    for (int m = 0; m < kWarpRows / 16; ++m)
      load_matrices(a[kAt][m], own + m * 16 * Shape::kPitch + piece * kStep + kAt * 16);
#pragma unroll
    for (int pair = 0; pair < Shape::kTiles / 2; ++pair)
      b[kAt][pair] = *reinterpret_cast<const uint4*>(packed + offset + kAt * 16 * kWidth + pair * 256);
  };
  const auto add = [&](auto step) {
    constexpr int kAt = decltype(step)::value;
#pragma unroll
    for (int pair = 0; pair < Shape::kTiles / 2; ++pair)
#pragma unroll
      for (int m = 0; m < kWarpRows / 16; ++m) {
        multiply_add(sums[m][2 * pair], a[kAt][m], b[kAt][pair].x, b[kAt][pair].y);
        multiply_add(sums[m][2 * pair + 1], a[kAt][m], b[kAt][pair].z, b[kAt][pair].w);
      }
  };
  constexpr std::integral_constant<int, 0> kFirst;
  constexpr std::integral_constant<int, 1> kSecond;
  const BFloat16* packed = weights.take();
  load(kFirst, packed, 0);
  for (int piece = 0; piece < pieces; ++piece) {  // what comes next is on its way while a product is made
    load(kSecond, packed, piece);
    add(kFirst);
    if (piece + 1 < pieces) {
      packed = weights.take();
      load(kFirst, packed, piece + 1);
    }
    add(kSecond);
  }
}

// body(m, n, half, row in the block, column) for each two neighboring numbers of a warp's sums.
template <int kWidth, int kWarps, class Body>
__device__ __forceinline__ void for_each_pair(const Body& body) {
  using Shape = Tile<kWidth, kWarps>;
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int row = warp / kColumnWarps * kWarpRows + lane / 4;
  const int column = warp % kColumnWarps * (kWidth / kColumnWarps) + lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < Shape::kTiles; ++n)
#pragma unroll
    for (int m = 0; m < kWarpRows / 16; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) body(m, n, half, row + m * 16 + half * 8, column + n * 8);
}

// A tile in shared memory to whole rows [N,kWidth] of global memory.
template <int kWidth, int kWarps>
__device__ __forceinline__ void store_tile(const BFloat16* x, BFloat16* to, int64_t first, int64_t rows) {
  using Shape = Tile<kWidth, kWarps>;
  constexpr int kPacks = kWidth / 8;
#pragma unroll 4
  for (int i = int(threadIdx.x); i < Shape::kRows * kPacks; i += Shape::kThreadCount) {
    const int row = i / kPacks, column = i % kPacks * 8;
    if (first + row < rows)
      *reinterpret_cast<uint4*>(to + (first + row) * kWidth + column) =
          *reinterpret_cast<const uint4*>(x + row * Shape::kPitch + column);
  }
}

template <int kWidth, int kWarps>
__device__ __forceinline__ void ask_for_tile(BFloat16* x, const BFloat16* from, int64_t first, int64_t rows) {
  using Shape = Tile<kWidth, kWarps>;
  constexpr int kPacks = kWidth / 8;
  for (int i = int(threadIdx.x); i < Shape::kRows * kPacks; i += Shape::kThreadCount) {
    const int row = i / kPacks, column = i % kPacks * 8;
    const bool there = first + row < rows;
    copy_later(x + row * Shape::kPitch + column, from + (there ? (first + row) * kWidth + column : 0), there);
  }
  end_group();
}

// Rows of float32 [N,count], rounded, zeros up to `columns`, an even number: a warp per row.
template <int kWidth, int kWarps>
__device__ __forceinline__ void load_rounded(BFloat16* x, const float* from, int count, int columns, int64_t first,
                                             int64_t rows) {
  using Shape = Tile<kWidth, kWarps>;
  constexpr int kAllWarps = kWarps * kColumnWarps;
  for (int column = int(threadIdx.x % 32) * 2; column < columns; column += 64) {
#pragma unroll
    for (int i = 0; i < Shape::kRows / kAllWarps; ++i) {
      const int row = i * kAllWarps + int(threadIdx.x / 32);
      const float* number = from + (first + row) * count + column;
      const bool there = first + row < rows;
      const float low = there && column < count ? number[0] : 0.0f;
      const float high = there && column + 1 < count ? number[1] : 0.0f;
      *reinterpret_cast<uint32_t*>(x + row * Shape::kPitch + column) = round_pair(low, high);
    }
  }
}

}  // namespace nerf::cuda
