// Cells of a grid whose vertices and rows can be counted in 32 bits: a GPU does several times as many such additions as
// of 64 bits, and nearly nothing else is done on the way to a row.
#pragma once

#include <type_traits>

#include "../math/trilinear.h"

namespace nerf::cuda {

// What a kernel asks of the grid. Computed on the host: conversions between integers and floats are dear.
struct ShortGrid {
  int stride[3];       // vertices to the next one on each axis; 0 where the grid has one only
  float last[3];       // number of the last vertex
  float last_cell[3];  // that of the last cell

  template <class Rows>
  ShortGrid(const int64_t vertices[3], const Rows& rows) {
    const int64_t pitch = rows.pitch(vertices[2]), apart[3] = {vertices[1] * pitch, pitch, 1};
    for (int axis = 0; axis < 3; ++axis) {
      stride[axis] = vertices[axis] > 1 ? int(apart[axis]) : 0;
      last[axis] = float(vertices[axis] - 1);
      last_cell[axis] = float(max2<int64_t>(vertices[axis] - 2, 0));
    }
  }
};

constexpr int64_t kShortPoints = 1 << 30;

// Whether ShortGrid can stand for the grid, and ints count the points.
template <class T>
bool is_short(const TrilinearArgs<T>& a) {
  const int64_t* n = a.vertices;
  const int64_t pitch = a.table.words ? a.table.sparse().pitch(n[2]) : n[2];
  return n[0] <= kShortCells && n[1] <= kShortCells && n[2] <= kShortCells && n[0] * n[1] * pitch <= INT32_MAX &&
         a.table.count <= INT32_MAX && a.num_points <= kShortPoints;
}

struct ShortPlace {
  int cell;
  float fraction;
};

// axis_place where the grid is short, to the last bit.
__device__ inline ShortPlace short_place(float coord, const ShortGrid& grid, int axis) {
  const float x = clamp(coord, 0.0f, grid.last[axis]);
  const int cell = int(std::fmin(std::fmax(x, 0.0f), grid.last_cell[axis]));  // NaN is in cell 0
  return {cell, x - float(cell)};
}

// make_stencil, without `inside`.
__device__ inline Stencil<float, int> short_stencil(const float* coord, const ShortGrid& grid) {
  Stencil<float, int> s = {};
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    const ShortPlace place = short_place(__ldg(coord + axis), grid, axis);
    s.weight[axis][0] = 1.0f - place.fraction;
    s.weight[axis][1] = place.fraction;
    s.stride[axis] = grid.stride[axis];
    s.row += place.cell * grid.stride[axis];
  }
  return s;
}

// Has nvcc compute a value here, once. Else it takes apart what is the same for all rows, to put it together for each.
template <class T>
__device__ void compute_here([[maybe_unused]] T& value) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_pointer_v<T>) {
    auto address = __cvta_generic_to_global(value);
    asm("" : "+l"(address));
    value = static_cast<T>(__cvta_global_to_generic(address));
  } else if constexpr (std::is_floating_point_v<T>) {
    asm("" : "+f"(value));
  } else {
    asm("" : "+r"(value));
  }
#endif
}

__device__ inline void multiply_add(float weight, float value, float& sum) { sum += weight * value; }

__device__ inline void multiply_add(float weight, float4 value, float4& sum) {
  sum.x += weight * value.x;
  sum.y += weight * value.y;
  sum.z += weight * value.z;
  sum.w += weight * value.w;
}

}  // namespace nerf::cuda
