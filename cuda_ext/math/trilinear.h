// Trilinear interpolation at one point, and its adjoint.
//
// The grid has X * Y * Z vertices with C channels each, channels last. Coordinates are in grid units: vertex (x, y, z)
// sits at (x, y, z). Outside the grid the nearest point of its surface counts, and the gradient with respect to the
// coordinate is zero there. The result is linear in the grid, so its adjoint scatters with the same eight weights.
// In a sparse grid (rows.h) a vertex without a row counts as 0.
#pragma once

#include "cells.h"
#include "dot.h"
#include "rows.h"
#include "stored.h"

namespace nerf {

// The cell around a point: the row of its lowest vertex, the distance to the other rows, the weights on each axis.
template <class T, class Row = int64_t>
struct Stencil : CornerWeights<T> {
  Row row;         // vertex of the corner (0, 0, 0); in a dense grid its row
  Row stride[3];   // to the next vertex on each axis; 0 where the grid has one vertex only
  bool inside[3];  // false: clamped, no gradient with respect to this coordinate

  // Corner k = 4x + 2y + z.
  HOST_DEVICE Row corner_row(int k) const {
    return row + (k & 4 ? stride[0] : 0) + (k & 2 ? stride[1] : 0) + (k & 1 ? stride[2] : 0);
  }

  // Derivative of corner_weight with respect to the coordinate on one axis.
  HOST_DEVICE T corner_weight_slope(int k, int axis) const {
    return inside[axis] ? this->fraction_slope(k, axis) : T(0);
  }
};

// The cell on one axis of a coordinate that lies on the grid. The last vertex belongs to the cell below it; NaN ends up in
// cell 0 and stays NaN in the weights.
template <class T>
HOST_DEVICE int64_t cell_of(T x, int64_t vertices) {
  return nearest_cell(x, max2<int64_t>(vertices - 1, 1));
}

// Where a point lies on one axis: its cell, and how far into it.
template <class T>
struct AxisPlace {
  int64_t cell;
  T fraction;
};

template <class T>
HOST_DEVICE AxisPlace<T> axis_place(T coord, int64_t vertices) {
  const T x = clamp(coord, T(0), T(vertices - 1));
  const int64_t cell = cell_of(x, vertices);
  return {cell, x - T(cell)};
}

template <class T, class Rows = DenseRows>
HOST_DEVICE Stencil<T> make_stencil(const T* coord, const int64_t vertices[3], const Rows& rows = {}) {
  Stencil<T> s;
  int64_t base[3];
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    const T last = T(vertices[axis] - 1);
    const AxisPlace<T> place = axis_place(coord[axis], vertices[axis]);
    base[axis] = place.cell;
    s.weight[axis][0] = T(1) - place.fraction;
    s.weight[axis][1] = place.fraction;
    s.inside[axis] = coord[axis] >= T(0) && coord[axis] <= last && vertices[axis] > 1;
    s.stride[axis] = vertices[axis] > 1;
  }
  const int64_t pitch = rows.pitch(vertices[2]);
  s.row = (base[0] * vertices[1] + base[1]) * pitch + base[2];
  s.stride[0] *= vertices[1] * pitch;
  s.stride[1] *= pitch;
  return s;
}

// d(out . grad) / d(coord) = sum over corners of slope * (grad . corner values).
template <class T, class Rows, class V, class G>
HOST_DEVICE void coordinate_gradient(const Stencil<T>& s, const Rows& rows, const V* grid, const G* grad_out,
                                     int64_t channels, T* grad_coord) {
  T sum[3] = {T(0), T(0), T(0)};
  NERF_UNROLL for (int k = 0; k < 8; ++k) {
    const int64_t row = rows.row(s.corner_row(k));
    if (Rows::kSparse && row < 0) continue;
    const T slope = dot(grid + row * channels, grad_out, channels);
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) sum[axis] += s.corner_weight_slope(k, axis) * slope;
  }
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) grad_coord[axis] = sum[axis];
}

template <class S>
struct TrilinearArgs {
  using T = Wide<S>;
  const Value<S>* grid;  // [X,Y,Z,C], or [L,C] if it is sparse
  RowTable table;
  int64_t vertices[3], channels;
  const T* coords;  // [N,3] grid units
  int64_t num_points;
  Interpolated<S>* out;             // [N,C]             forward
  const Interpolated<S>* grad_out;  // [N,C]             backward
  Gradient<S>* grad_grid;           // like grid, or null: added to
  T* grad_coords;                   // [N,3] or null
};

}  // namespace nerf
