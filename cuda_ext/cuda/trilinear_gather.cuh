// interpolate_trilinear for rows of whole 16 bytes: one thread per point and float4, so the threads of a point read
// consecutive pieces; and for rows of one number, a thread per point. The includer brings launch.cuh, or a stand-in for it
// (tests/cpp).
#pragma once

#include "../math/place.h"
#include "trilinear_short.cuh"
#include "warp.cuh"

namespace nerf::cuda {

// One float4 of a point: row_of(k) says where corner k is.
template <class Rows, class RowOf>
__device__ float4 sum_of_corners(Stencil<float, int> s, const float* grid, int quads, int quad, const RowOf& row_of) {
  const float4* column = reinterpret_cast<const float4*>(grid) + quad;
  reckon_here(column);
  reckon_here(s.weight[2][0]);
  float4 sum = {0, 0, 0, 0};
  NERF_UNROLL for (int xy = 0; xy < 4; ++xy) {
    float weight = s.weight[0][xy / 2] * s.weight[1][xy % 2];
    reckon_here(weight);
    NERF_UNROLL for (int z = 0; z < 2; ++z) {
      const int row = row_of(2 * xy + z);
      if (!Rows::kSparse || row >= 0) multiply_add(weight * s.weight[2][z], __ldg(column + int64_t(row) * quads), sum);
    }
  }
  return sum;
}

// kQuads: float4 per row where known at compile time (it turns a division into a multiplication), else 0.
template <int kQuads, class Rows>
__global__ void __launch_bounds__(kThreads)
    gather_float4_kernel(TrilinearArgs<float> a, ShortGrid grid, int quads, Rows rows) {
  if (kQuads) quads = kQuads;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const Place place = nerf::place(i, quads);
  if (place.row >= a.num_points) return;
  const Stencil<float, int> s = short_stencil(a.coords + 3 * place.row, grid);
  int row[8];
  corner_rows(s, rows, row);
  reinterpret_cast<float4*>(a.out)[i] =
      sum_of_corners<Rows>(s, a.grid, quads, int(place.column), [&](int k) { return row[k]; });
}

// The same for four float4 per row. A point's corners are four pairs along z, and each of its four threads looks one of
// them up in the table and tells the others: they would all ask the same.
template <class Rows>
__global__ void __launch_bounds__(kThreads)
    gather_four_quads_kernel(TrilinearArgs<float> a, ShortGrid grid, Rows rows) {
  const int point = int(blockIdx.x * (kThreads / 4) + threadIdx.x / 4), quad = int(threadIdx.x % 4);
  const int n = min2(point, int(a.num_points) - 1);  // nobody leaves who may be asked
  const Stencil<float, int> s = short_stencil(a.coords + 3 * int64_t(n), grid);
  int low = 0, high = 0;
  if constexpr (Rows::kSparse) rows.pair(s.corner_row(2 * quad), s.stride[2], low, high);
  const float4 sum = sum_of_corners<Rows>(s, a.grid, 4, quad, [&](int k) {
    return Rows::kSparse ? __shfl_sync(kAllLanes, k % 2 ? high : low, k / 2, 4) : s.corner_row(k);
  });
  if (point == n) reinterpret_cast<float4*>(a.out)[int64_t(n) * 4 + quad] = sum;
}

// One number a vertex, as density has.
template <class Rows>
__global__ void __launch_bounds__(kThreads) gather_numbers_kernel(TrilinearArgs<float> a, ShortGrid grid, Rows rows) {
  const int64_t n = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (n >= a.num_points) return;
  const Stencil<float, int> s = short_stencil(a.coords + 3 * n, grid);
  int row[8];
  corner_rows(s, rows, row);
  float sum = 0;
  NERF_UNROLL for (int k = 0; k < 8; ++k)
    if (!Rows::kSparse || row[k] >= 0) sum += s.corner_weight(k) * __ldg(a.grid + row[k]);
  a.out[n] = sum;
}

}  // namespace nerf::cuda
