// The adjoint of interpolate_trilinear with respect to the grid. The includer brings launch.cuh and float4.cuh, or a
// stand-in for them (tests/cpp).
//
// Points come in the order of the rays, so the next one lies in the same cell or in one beside it. A thread walks a run
// of consecutive points with one float4 (or float) of a row and keeps sums of vertices in registers; when the cell of
// the next point has another vertex in a sum's place, the old one is added to memory. From sm_90 on each such addition
// is one 16-byte reduction. Of the eight corners of any cell each has another combination of even and odd numbers on
// the three axes: that is a sum's place, and it holds on to its vertex for as long as the cell has it. Two threads
// share a cell, one with the corners of even z, one with those of odd z. These lie beside each other in memory, so that
// the two write to the same lines at once: where points are random, and sums are never kept, that is what counts.
#pragma once

#include "../math/place.h"
#include "trilinear_short.cuh"
#include "warp.cuh"

namespace nerf::cuda {

constexpr int kRun = 8;  // points per thread: more share more corners, fewer make more threads

__device__ inline bool is_zero(float value) { return value == 0; }
__device__ inline bool is_zero(float4 v) { return v.x == 0 && v.y == 0 && v.z == 0 && v.w == 0; }

__device__ inline void add(float* target, float value) { atomicAdd(target, value); }
__device__ inline void add(float4* target, float4 value) { add_float4(target, value); }
__device__ inline void add(BFloat16* target, float value) { add_short(target, value); }
__device__ inline void add(ShortFour* target, float4 value) { add_short(target, value); }

// A piece V of a row of gradients, as it is stored.
template <class S, class V>
struct StoredPiece {
  using Type = V;
};
template <>
struct StoredPiece<ShortSamples, float> {
  using Type = BFloat16;
};
template <>
struct StoredPiece<ShortSamples, float4> {
  using Type = ShortFour;
};

// Eight numbers of a row that is stored in 16 bits.
struct Eight {
  float4 v[2];
};
struct alignas(16) ShortEight {
  ShortFour v[2];
};
template <>
struct StoredPiece<ShortSamples, Eight> {
  using Type = ShortEight;
};

__device__ inline bool is_zero(const Eight& x) { return is_zero(x.v[0]) && is_zero(x.v[1]); }
__device__ inline void add(ShortEight* target, const Eight& value) { add_short(target, value.v[0], value.v[1]); }
__device__ inline void multiply_add(float weight, const Eight& value, Eight& sum) {
  NERF_UNROLL for (int i = 0; i < 2; ++i) multiply_add(weight, value.v[i], sum.v[i]);
}

// A piece as it is on its way from memory, and as it is computed with.
__device__ inline float read(const float* piece) { return __ldg(piece); }
__device__ inline float4 read(const float4* piece) { return __ldg(piece); }
__device__ inline BFloat16 read(const BFloat16* piece) { return *piece; }
__device__ inline uint2 read(const ShortFour* piece) { return __ldg(reinterpret_cast<const uint2*>(piece)); }
__device__ inline uint4 read(const ShortEight* piece) { return __ldg(reinterpret_cast<const uint4*>(piece)); }
__device__ inline float wide_piece(float piece) { return piece; }
__device__ inline float4 wide_piece(float4 piece) { return piece; }
__device__ inline float wide_piece(BFloat16 piece) { return widen(piece); }
__device__ inline float4 wide_piece(uint2 pairs) {
  return make_float4(widen_low(pairs.x), widen_high(pairs.x), widen_low(pairs.y), widen_high(pairs.y));
}
__device__ inline Eight wide_piece(uint4 pairs) {
  return {{wide_piece(uint2{pairs.x, pairs.y}), wide_piece(uint2{pairs.z, pairs.w})}};
}

// On one axis of a point's cell: the vertex with an even number and the one with an odd number, each times its stride,
// and their weights.
struct AxisCorners {
  int vertex[2];
  float weight[2];
};

__device__ inline AxisCorners axis_corners(float coord, const ShortGrid& grid, int axis) {
  const ShortPlace place = short_place(coord, grid, axis);
  const int cell = place.cell * grid.stride[axis], above = cell + grid.stride[axis];
  const bool odd = place.cell & 1;
  const float low = 1 - place.fraction, high = place.fraction;
  return {{odd ? above : cell, odd ? cell : above}, {odd ? high : low, odd ? low : high}};
}

// A point and its gradient, for one piece V of a row.
template <class V>
struct Incoming {
  float coord[3];
  V grad;
};

template <class V, class S>
__device__ Incoming<V> incoming(const TrilinearArgs<S>& a, int n, int width, int piece) {
  const float* coord = a.coords + 3 * int64_t(n);
  const auto* grads = reinterpret_cast<const typename StoredPiece<S, V>::Type*>(a.grad_out);
  return {{__ldg(coord), __ldg(coord + 1), __ldg(coord + 2)},
          wide_piece(read(grads + (int64_t(n) * width + piece)))};
}

// kWidth: pieces V per row where known at compile time, else 0.
template <class V, int kWidth, class S, class Rows>
__global__ void __launch_bounds__(kThreads, 3)
    scatter_runs_kernel(TrilinearArgs<S> a, ShortGrid grid, int width, Rows rows) {
  if (kWidth) width = kWidth;
  const Place place = nerf::place(int64_t(blockIdx.x) * kThreads + threadIdx.x, 2 * width);
  const int first = int(place.row) * kRun, end = min2(first + kRun, int(a.num_points));
  if (first >= end) return;
  const int odd_z = place.column >= unsigned(width), piece = int(place.column) - odd_z * width;
  auto* target = reinterpret_cast<typename StoredPiece<S, V>::Type*>(a.grad_grid) + piece;
  compute_here(target);
  V sum[2][2] = {};
  int vertex[2][2] = {};  // whose sums these are
  const auto write = [&](int i, int j) {
    if (is_zero(sum[i][j])) return;
    const int row = rows.row(vertex[i][j]);
    if (!Rows::kSparse || row >= 0) add(target + int64_t(row) * width, sum[i][j]);
  };
  Incoming<V> next = incoming<V>(a, first, width, piece);
  for (int n = first; n < end; ++n) {
    const Incoming<V> now = next;
    if (n + 1 < end) next = incoming<V>(a, n + 1, width, piece);  // on its way while this one is added
    // Samples that weigh nothing (behind a surface, the unused tail of a batch) are many; they add nothing.
    if (is_zero(now.grad)) continue;
    const AxisCorners x = axis_corners(now.coord[0], grid, 0), y = axis_corners(now.coord[1], grid, 1);
    const AxisCorners z = axis_corners(now.coord[2], grid, 2);
    const int vertex_z = odd_z ? z.vertex[1] : z.vertex[0];
    const float weight_z = odd_z ? z.weight[1] : z.weight[0];
    NERF_UNROLL for (int i = 0; i < 2; ++i)
      NERF_UNROLL for (int j = 0; j < 2; ++j) {
        const int here = x.vertex[i] + y.vertex[j] + vertex_z;
        if (vertex[i][j] != here) {
          write(i, j);
          sum[i][j] = V{};
          vertex[i][j] = here;
        }
        multiply_add(x.weight[i] * y.weight[j] * weight_z, now.grad, sum[i][j]);
      }
  }
  NERF_UNROLL for (int i = 0; i < 2; ++i)
    NERF_UNROLL for (int j = 0; j < 2; ++j) write(i, j);
}

// What is known of a vertex before its row is needed: the word of a sparse grid's table. Nobody waits for it.
__device__ inline uint64_t look_up(const SparseRowsOf<int>& rows, int vertex) { return rows.word_of(vertex); }
__device__ inline int row_of(const SparseRowsOf<int>& rows, uint64_t word, int vertex) {
  return rows.row_in(word, uint32_t(1) << (vertex & 31));
}
__device__ inline int look_up(const DenseRows&, int) { return 0; }
__device__ inline int row_of(const DenseRows&, int, int vertex) { return vertex; }

constexpr int kStays = -2;  // in place of a row: the place keeps its vertex

template <class S>
using RowPiece = std::conditional_t<kIsOneOf<S, ShortSamples>, Eight, float4>;

// The same for rows of 16 numbers, where a run's eight threads share what each would compute alike. Thread l finds the
// cell of the run's point l, and tells it when the walk is there. Thread 4 z + 2 x + y then stands for one place, that
// of the vertices whose numbers are odd on the axes where the bit is set: it weighs the place's corner and knows its
// row. A row has kPieces pieces of 16 bytes of memory. As many neighboring threads keep the sums of the places that they
// stand for, a piece each: they learn the weight from that thread, and the row where the sum has to be written. So the
// table is asked once for each vertex that comes into a place.
template <class S, class Rows>
__global__ void __launch_bounds__(kThreads, 4) scatter_sixteen_kernel(TrilinearArgs<S> a, ShortGrid grid, Rows rows) {
  using V = RowPiece<S>;
  constexpr int kPieces = 16 * sizeof(float) / sizeof(V);
  static_assert(kRun == 8, "each of eight threads finds the cell of a point");
  const int lane = int(threadIdx.x % 8), piece = lane % kPieces;
  const int first = int(blockIdx.x * (kThreads / 8) + threadIdx.x / 8) * kRun, count = int(a.num_points) - first;
  unsigned own_lanes = 0xffu << (threadIdx.x % 32 / 8 * 8);
  compute_here(own_lanes);
  // For this thread's place, where a cell's number is even and where it is odd: 1 or 0, whose distance from the
  // fraction is the weight, and how far the vertex is from the lowest corner.
  float from[3][2];
  int way[3][2];
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    const bool odd = lane & (axis == 0 ? 2 : axis == 1 ? 1 : 4);
    from[axis][0] = odd ? 0 : 1, from[axis][1] = odd ? 1 : 0;
    way[axis][0] = odd ? grid.stride[axis] : 0, way[axis][1] = odd ? 0 : grid.stride[axis];
    NERF_UNROLL for (int i = 0; i < 2; ++i) compute_here(from[axis][i]), compute_here(way[axis][i]);
  }
  int cell = 0;        // of this thread's point: vertex of the lowest corner
  float part[3] = {};  // fraction on each axis; negative where the cell's number is odd
  if (lane < count)
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      const ShortPlace place = short_place(__ldg(a.coords + (3 * int64_t(first + lane) + axis)), grid, axis);
      cell += place.cell * grid.stride[axis];
      part[axis] = std::copysign(place.fraction, place.cell & 1 ? -1.0f : 1.0f);
    }

  using Stored = typename StoredPiece<S, V>::Type;
  const Stored* grads = reinterpret_cast<const Stored*>(a.grad_out) + (int64_t(first) * kPieces + piece);
  compute_here(grads);
  const int in_run = min2(count, kRun);
  auto* target = reinterpret_cast<Stored*>(a.grad_grid) + piece;
  compute_here(target);
  V sum[kPieces] = {};  // of the places of this thread and of those beside it
  int vertex = -1;      // in the place that this thread stands for; none yet
  auto word = decltype(look_up(rows, 0))(0);
  const auto write = [&](int row) {
    NERF_UNROLL for (int k = 0; k < kPieces; ++k) {
      const int row_k = __shfl_sync(kAllLanes, row, k, kPieces);
      if (row_k >= 0) add(target + int64_t(row_k) * kPieces, sum[k]);
      if (row_k != kStays) sum[k] = V{};
    }
  };
  decltype(read(grads)) next = {};
  if (0 < count) next = read(grads);
#pragma unroll 2
  for (int p = 0; p < kRun; ++p) {
    const V grad = wide_piece(next);
    grads += kPieces;
    next = {};
    if (p + 1 < in_run) next = read(grads);  // on its way while this one is added
    // Samples that weigh nothing (behind a surface, the unused tail of a batch) are many; they add nothing.
    const bool counts = !is_zero(grad);
    const unsigned counting = __ballot_sync(kAllLanes, counts);
    if (counting == 0) continue;
    int here = __shfl_sync(kAllLanes, cell, p, 8);
    float weight = 1;
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      const float of_point = __shfl_sync(kAllLanes, part[axis], p, 8);
      const bool odd = std::signbit(of_point);
      const float on_axis = std::abs((odd ? from[axis][1] : from[axis][0]) - std::abs(of_point));
      weight = axis ? weight * on_axis : on_axis;
      here += odd ? way[axis][1] : way[axis][0];
    }
    const bool moves = here != vertex && (counting & own_lanes);
    if (__any_sync(kAllLanes, moves)) {
      int row = row_of(rows, word, vertex);
      compute_here(row);
      write(moves ? row : kStays);
      if (moves) {
        vertex = here;
        word = look_up(rows, vertex);
      }
    }
    NERF_UNROLL for (int k = 0; k < kPieces; ++k) {
      const float weight_k = __shfl_sync(kAllLanes, weight, k, kPieces);
      if (counts) multiply_add(weight_k, grad, sum[k]);
    }
  }
  write(row_of(rows, word, vertex));
}

}  // namespace nerf::cuda
