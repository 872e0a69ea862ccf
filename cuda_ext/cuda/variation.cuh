// The neighbors of a pack in a grid, and the sum of their slopes of total variation.
#pragma once

#include "../math/total_variation.h"
#include "pack.cuh"
// Behind it.
#include "wide_pack.cuh"

namespace nerf::cuda {

// The neighbors of a value along each axis, below and above.
struct Neighbors {
  int64_t stride[3];
  bool there[3][2];

  // Where the one of the value at i begins.
  __device__ int64_t place(int64_t i, int axis, int up) const { return up ? i + stride[axis] : i - stride[axis]; }
};

struct SparseNeighbors {
  int64_t row_size, column, row[3][2];
  bool there[3][2];

  __device__ int64_t place(int64_t, int axis, int up) const { return row[axis][up] * row_size + column; }
};

// Of a vertex of a dense grid.
template <class T>
__device__ Neighbors neighbors(const TotalVariationArgs<T>& a, int64_t vertex) {
  const int64_t size_x = a.vertices[0], size_y = a.vertices[1], size_z = a.vertices[2], along = size_z * a.channels;
  const Place column = place(vertex, size_z), plane = place(column.row, size_y);
  const int64_t x = plane.row, y = plane.column, z = column.column;
  return {{size_y * along, along, a.channels},
          {{x > 0, x + 1 < size_x}, {y > 0, y + 1 < size_y}, {z > 0, z + 1 < size_z}}};
}

// Of a vertex of a sparse grid that exists; column: where the pack begins in its row.
template <class T>
__device__ SparseNeighbors sparse_neighbors(const TotalVariationArgs<T>& a, const SparseRows& rows,
                                              const SparseVertex& vertex, int64_t column) {
  SparseNeighbors near = {a.channels, column};
  neighbor_rows(a, rows, vertex, near.row);
#pragma unroll
  for (int axis = 0; axis < 3; ++axis)
#pragma unroll
    for (int up = 0; up < 2; ++up) near.there[axis][up] = near.row[axis][up] >= 0;
  return near;
}

// The neighbors of a pack, all on their way together; where there is none, the pack itself is read instead.
template <class T, int kSize>
struct NearPacks {
  Pack<T, kSize> pack[3][2];
  bool there[3][2];

  template <class V, class Near>
  __device__ NearPacks(const V* grid, int64_t i, const Near& near) {
#pragma unroll
    for (int axis = 2; axis >= 0; --axis)
#pragma unroll
      for (int up = 0; up < 2; ++up) {
        there[axis][up] = near.there[axis][up];
        pack[axis][up] = load_wide<kSize>(grid + (there[axis][up] ? near.place(i, axis, up) : i));
      }
  }

  __device__ Pack<T, kSize> slopes(const Pack<T, kSize>& own) const {
    Pack<T, kSize> sum = {};
#pragma unroll
    for (int axis = 2; axis >= 0; --axis)
#pragma unroll
      for (int up = 0; up < 2; ++up)
#pragma unroll
        for (int c = 0; c < kSize; ++c)
          sum.v[c] += there[axis][up] ? variation_slope(own.v[c], pack[axis][up].v[c]) : T(0);
    return sum;
  }
};

}  // namespace nerf::cuda
