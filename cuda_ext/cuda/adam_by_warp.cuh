// Adam on rows of a few packs (kChannels, known to the compiler), with total variation or without: a warp takes 32 rows of the
// list. First each lane reads its share of their gradients, all on their way together. A lane whose own row has a gradient
// then looks for its neighbors: once a row, as a row's packs all have the same ones, and it is the looking that takes
// instructions, not the bytes. At last the lanes share out the packs of the rows with a gradient, which are a third, so that
// few lanes are idle. The includer brings pack.cuh, or a stand-in for it (tests/cpp).
#pragma once

#include "../math/adam.h"
#include "warp.cuh"
#include "wide_pack.cuh"

namespace nerf::cuda {

// Total variation that a step adds to the gradients of a row, by the rows of its neighbors. find: of the n-th row of the
// list; where there is no neighbor the row itself, which differs by nothing.
struct NoneBeside {
  static constexpr bool kAdds = false;
  __device__ float weight() const { return 0; }
  __device__ void find(int, int, int (&)[3][2]) const {}
};

template <class S>
struct DenseBeside {
  static constexpr bool kAdds = true;
  TotalVariationArgs<S> args;

  __device__ float weight() const { return args.weight; }
  __device__ void find(int, int row, int (&near)[3][2]) const {
    const int size_x = int(args.vertices[0]), size_y = int(args.vertices[1]), size_z = int(args.vertices[2]);
    const unsigned line = unsigned(row) / unsigned(size_z);
    const int z = row - int(line) * size_z, x = int(line / unsigned(size_y)), y = int(line) - x * size_y;
    const int at[3] = {x, y, z}, size[3] = {size_x, size_y, size_z}, stride[3] = {size_y * size_z, size_z, 1};
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      near[axis][0] = at[axis] > 0 ? row - stride[axis] : row;
      near[axis][1] = at[axis] + 1 < size[axis] ? row + stride[axis] : row;
    }
  }
};

template <class S>
struct SparseBeside {
  static constexpr bool kAdds = true;
  TotalVariationArgs<S> args;

  __device__ float weight() const { return args.weight; }
  // Along z the rows of neighbors follow each other, and a bit tells whether there is one. A vertex that does not exist has
  // none.
  __device__ void find(int n, int row, int (&near)[3][2]) const {
    const auto rows = args.table.short_sparse();
    const int size_x = int(args.vertices[0]), size_y = int(args.vertices[1]), size_z = int(args.vertices[2]);
    const int words_z = int(rows.pitch(size_z)) / kVerticesOfWord, last = rows.count - 1;
    const int64_t listed = args.rows[n];
    const bool exists = listed >= 0 && listed < args.vertices[0] * args.vertices[1] * args.vertices[2];
    const unsigned vertex = exists ? unsigned(listed) : 0, line = vertex / unsigned(size_z);
    const int z = int(vertex - line * size_z), x = int(line / unsigned(size_y)), y = int(line) - x * size_y;
    const int own = int(line) * words_z + z / kVerticesOfWord, place = z % kVerticesOfWord;
    const bool there[2][2] = {{exists && x > 0, exists && x + 1 < size_x}, {exists && y > 0, exists && y + 1 < size_y}};
    const int stride[2] = {size_y * words_z, words_z};
    uint64_t word[2][2];
#pragma unroll
    for (int axis = 0; axis < 2; ++axis)
#pragma unroll
      for (int up = 0; up < 2; ++up)
        word[axis][up] = rows.word(own + (there[axis][up] ? (up ? stride[axis] : -stride[axis]) : 0));
    const uint32_t here = uint32_t(rows.word(own));
    const uint32_t below = place > 0 ? here >> (place - 1) : z > 0 ? uint32_t(rows.word(own - 1)) >> 31 : 0;
    const uint32_t above = place < 31 ? here >> (place + 1) : z + 1 < size_z ? uint32_t(rows.word(own + 1)) : 0;
#pragma unroll
    for (int axis = 0; axis < 2; ++axis)
#pragma unroll
      for (int up = 0; up < 2; ++up) {
        const int found = rows.row_in(word[axis][up], uint32_t(there[axis][up]) << place);
        near[axis][up] = found < 0 ? row : found;
      }
    near[2][0] = exists && (below & 1) ? max2(row - 1, 0) : row;
    near[2][1] = exists && (above & 1) ? min2(row + 1, last) : row;
  }
};

// Channels of a pack: as much of a row as one instruction moves, if rows consist of so many and have no neighbors, which
// twice as many threads read faster.
template <class S, int kChannels, class Beside>
constexpr int kSizeOfPack =
    !Beside::kAdds && kChannels % kPackSize<Value<S>> == 0 ? kPackSize<Value<S>> : kPackSize<float>;

template <class S, int kChannels, class Beside>
__global__ void __launch_bounds__(kThreads, 4) adam_by_warp_kernel(AdamArgs<S> a, Beside rows_beside) {
  constexpr int kSize = kSizeOfPack<S, kChannels, Beside>, kPacks = kChannels / kSize;
  constexpr int kRows = 32 / kPacks;  // that a warp steps at once
  __shared__ AdamScale<float> scale;
  __shared__ bool has_gradient[kThreads / 32][32];
  __shared__ uint8_t lanes[kThreads / 32][32];  // of the rows with a gradient, one after the other
  if (threadIdx.x == 0) scale = adam_scale(a);
  __syncthreads();
  const int lane = threadIdx.x % 32, count = int(a.num_rows);
  bool* const found = has_gradient[threadIdx.x / 32];
  uint8_t* const order = lanes[threadIdx.x / 32];
  const float step = *a.step, one_rate = a.lr[0];
  const int warps = gridDim.x * (kThreads / 32);
  for (int first = 32 * (blockIdx.x * (kThreads / 32) + threadIdx.x / 32); first < count; first += 32 * warps) {
    const int n = first + lane;
    const int64_t listed = n < count ? (a.rows ? a.rows[n] : n) : -1;
    const int row = listed >= 0 && listed < a.all_rows ? int(listed) : -1;
    Pack<float, kSize> grad[kPacks];
    bool asked[kPacks];
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      const int k = 32 * j + lane, of = __shfl_sync(kAllLanes, row, k / kPacks);
      asked[j] = of >= 0;
      grad[j] = load_wide<kSize>(a.grad + int64_t(max2(of, 0)) * kChannels + k % kPacks * kSize);
    }
    found[lane] = false;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kPacks; ++j)
      if (asked[j] && !is_zero(grad[j])) found[(32 * j + lane) / kPacks] = true;
    __syncwarp();
    const bool touched = found[lane];
    const unsigned rows = __ballot_sync(kAllLanes, touched);
    if (rows == 0) continue;
    int near[3][2];
    if (touched) {
      order[__popc(rows & ((1u << lane) - 1))] = uint8_t(lane);
      rows_beside.find(n, row, near);
    }
    __syncwarp();
    for (int done = 0; done < __popc(rows); done += kRows) {
      const int at = done + lane / kPacks, column = lane % kPacks * kSize;
      const bool there = lane < kRows * kPacks && at < __popc(rows);
      const int owner = there ? order[at] : lane, of = __shfl_sync(kAllLanes, row, owner);
      int beside[3][2];
      if constexpr (Beside::kAdds) {
#pragma unroll
        for (int axis = 0; axis < 3; ++axis)
#pragma unroll
          for (int up = 0; up < 2; ++up) beside[axis][up] = __shfl_sync(kAllLanes, near[axis][up], owner);
      }
      if (!there) continue;
      const int64_t i = int64_t(of) * kChannels + column, moment = int64_t(first + owner) * kChannels + column;
      auto g = load_wide<kSize>(a.grad + i);  // again, from the nearest cache
      if (is_zero(g)) continue;
      auto p = load<kSize>(a.param + i);
      auto m = load<kSize>(a.exp_avg + moment), v = load<kSize>(a.exp_avg_sq + moment);
      if constexpr (Beside::kAdds) {
        const Pack<float, kSize> own = widened(p);
        Pack<float, kSize> other[3][2], sum = {};
#pragma unroll
        for (int axis = 2; axis >= 0; --axis)
#pragma unroll
          for (int up = 0; up < 2; ++up)
            other[axis][up] = load_wide<kSize>(a.param + int64_t(beside[axis][up]) * kChannels + column);
#pragma unroll
        for (int axis = 2; axis >= 0; --axis)
#pragma unroll
          for (int up = 0; up < 2; ++up)
#pragma unroll
            for (int c = 0; c < kSize; ++c)
              sum.v[c] += variation_slope(own.v[c], other[axis][up].v[c]);
#pragma unroll
        for (int c = 0; c < kSize; ++c)
          if (g.v[c] != 0) g.v[c] += rows_beside.weight() * sum.v[c];
      }
      const uint32_t seed = random_row(step, first + owner);
#pragma unroll
      for (int c = 0; c < kSize; ++c)
        adam_stored(a, scale, a.lr_count == 1 ? one_rate : a.lr[column + c], g.v[c], p.v[c], m.v[c], v.v[c],
                    random_bits(seed, column + c));
      store(a.param + i, p);
      store(a.exp_avg + moment, m);
      store(a.exp_avg_sq + moment, v);
      store(a.grad + i, Pack<Gradient<S>, kSize>{});
    }
    __syncwarp();  // before the order of the next 32 is written
  }
}

}  // namespace nerf::cuda
