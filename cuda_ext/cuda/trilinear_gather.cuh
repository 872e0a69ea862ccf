// interpolate_trilinear for rows of whole fours: one thread per point and four channels, so the threads of a point read
// consecutive pieces; and for rows of one number, a thread per point. The includer brings launch.cuh, or a stand-in for it
// (tests/cpp).
#pragma once

#include "../math/place.h"
#include "trilinear_short.cuh"
#include "warp.cuh"

namespace nerf::cuda {

// Some float4 of a row.
template <int kCount>
struct Quads {
  float4 v[kCount];
};

template <int kCount>
__device__ Quads<kCount> load_quads(const float* address) {
  static_assert(kCount == 1);
  return {{__ldg(reinterpret_cast<const float4*>(address))}};
}

__device__ inline float4 widened(uint32_t low, uint32_t high) {
  const auto wide = [](uint32_t number) { return widen(Float16{uint16_t(number)}); };
  return make_float4(wide(low), wide(low >> 16), wide(high), wide(high >> 16));
}

template <int kCount>
__device__ Quads<kCount> load_quads(const Float16* address) {
  if constexpr (kCount == 1) {
    const uint2 bits = __ldg(reinterpret_cast<const uint2*>(address));
    return {{widened(bits.x, bits.y)}};
  } else {
    const uint4 bits = __ldg(reinterpret_cast<const uint4*>(address));
    return {{widened(bits.x, bits.y), widened(bits.z, bits.w)}};
  }
}

template <int kCount>
__device__ void store_quads(float* address, const Quads<kCount>& quads) {
  NERF_UNROLL for (int i = 0; i < kCount; ++i) reinterpret_cast<float4*>(address)[i] = quads.v[i];
}

template <int kCount>
__device__ void store_quads(BFloat16* address, const Quads<kCount>& quads) {
  const uint2 first = round_four(quads.v[0]), last = round_four(quads.v[kCount - 1]);
  if constexpr (kCount == 1) *reinterpret_cast<uint2*>(address) = first;
  else *reinterpret_cast<uint4*>(address) = {first.x, first.y, last.x, last.y};
}

// kCount float4 of a point, from that of number quad on, of quads in a row: row_of(k) says where corner k is.
template <class Rows, int kCount, class V, class RowOf>
__device__ Quads<kCount> sum_of_corners(Stencil<float, int> s, const V* grid, int quads, int quad, const RowOf& row_of) {
  const V* column = grid + 4 * quad;
  compute_here(column);
  compute_here(s.weight[2][0]);
  Quads<kCount> sum = {};
  NERF_UNROLL for (int xy = 0; xy < 4; ++xy) {
    float weight = s.weight[0][xy / 2] * s.weight[1][xy % 2];
    compute_here(weight);
    NERF_UNROLL for (int z = 0; z < 2; ++z) {
      const int row = row_of(2 * xy + z);
      if (Rows::kSparse && row < 0) continue;
      const auto values = load_quads<kCount>(column + int64_t(row) * quads * 4);
      NERF_UNROLL for (int i = 0; i < kCount; ++i) multiply_add(weight * s.weight[2][z], values.v[i], sum.v[i]);
    }
  }
  return sum;
}

// kQuads: float4 per row where known at compile time (it turns a division into a multiplication), else 0.
template <int kQuads, class S, class Rows>
__global__ void __launch_bounds__(kThreads)
    gather_float4_kernel(TrilinearArgs<S> a, ShortGrid grid, int quads, Rows rows) {
  if (kQuads) quads = kQuads;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const Place place = nerf::place(i, quads);
  if (place.row >= a.num_points) return;
  const Stencil<float, int> s = short_stencil(a.coords + 3 * place.row, grid);
  int row[8];
  corner_rows(s, rows, row);
  store_quads(a.out + 4 * i, sum_of_corners<Rows, 1>(s, a.grid, quads, int(place.column), [&](int k) { return row[k]; }));
}

// Threads of a point of four float4 per row: each takes 16 bytes of it.
template <class S>
constexpr int kThreadsOfPoint = int(sizeof(Value<S>));

// The same for four float4 per row. A point's corners are four pairs along z, and each of its threads looks one or two of
// them up in the table and tells the others: they would all ask the same.
template <class S, class Rows>
__global__ void __launch_bounds__(kThreads)
    gather_four_quads_kernel(TrilinearArgs<S> a, ShortGrid grid, Rows rows) {
  constexpr int kOfPoint = kThreadsOfPoint<S>, kOwn = 4 / kOfPoint;  // float4, and pairs of corners, of a thread
  const int point = int(blockIdx.x * (kThreads / kOfPoint) + threadIdx.x / kOfPoint);
  const int part = int(threadIdx.x % kOfPoint), n = min2(point, int(a.num_points) - 1);  // nobody leaves who may be asked
  const Stencil<float, int> s = short_stencil(a.coords + 3 * int64_t(n), grid);
  int row[kOwn][2] = {};
  if constexpr (Rows::kSparse)
    NERF_UNROLL for (int i = 0; i < kOwn; ++i)
      rows.pair(s.corner_row(2 * (kOfPoint * i + part)), s.stride[2], row[i][0], row[i][1]);
  const auto sum = sum_of_corners<Rows, kOwn>(s, a.grid, 4, kOwn * part, [&](int k) {
    const int pair = k / 2;
    return Rows::kSparse ? __shfl_sync(kAllLanes, row[pair / kOfPoint][k % 2], pair % kOfPoint, kOfPoint)
                         : s.corner_row(k);
  });
  if (point == n) store_quads(a.out + (int64_t(n) * 4 + kOwn * part) * 4, sum);
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
