// What the marching operations have in common on the torch side: rays, occupancy, density.
#pragma once

#include "../march_offsets.h"
#include "../math/march_visible.h"
#include "operation.h"
#include "row_table.h"

namespace nerf {

// The rays and cells of a march, checked and dense; scratch for the occupancy's words and, on CUDA, for sums over rays.
struct MarchInputs {
  Tensor origins, directions, jitter, occupied, near, far, words, totals;
  double step_size, contraction;

  MarchInputs(const Tensor& o, const Tensor& d, const Tensor& j, const Tensor& cells, const Tensor& lower,
              const Tensor& upper, double step, double shell)
      : step_size(step), contraction(shell) {
    check_floating("origins", o);
    const ScalarType dtype = o.scalar_type();
    check_argument("origins", o, o, dtype, {kAny, 3});
    const int64_t num_rays = o.size(0);
    check_argument("directions", d, o, dtype, {num_rays, 3});
    check_argument("jitter", j, o, dtype, {num_rays});
    check_argument("near", lower, o, dtype, {num_rays});
    check_argument("far", upper, o, dtype, {num_rays});
    check_argument("occupied", cells, o, ScalarType::Bool, {kAny, kAny, kAny});
    if (cells.numel() == 0) reject("occupied has shape " + shape_name(cells.sizes()) + ", expected at least one cell");
    with_scalar(o, [&](auto scalar) {  // as it is computed with
      using T = decltype(scalar);
      if (!(T(step) > T(0) && T(step) < T(INFINITY)))
        reject("step_size is " + number_name(step) + ", expected a positive length");
      if (!(T(shell) >= T(0) && T(shell) < T(INFINITY)))
        reject("contraction is " + number_name(shell) + ", expected 0 (none) or the thickness of a shell");
    });
    origins = dense(o), directions = dense(d), jitter = dense(j), occupied = dense(cells), near = dense(lower),
    far = dense(upper);
    OccupancyWords packed = {};
    for (int axis = 0; axis < 3; ++axis) packed.cells[axis] = cells.size(axis);
    words = empty(origins, {packed.count()}, ScalarType::Long);
    totals = empty(origins, {o.is_cuda() ? num_rays / kRaysOfTotal + 1 : 0}, ScalarType::Long);
  }

  template <class T>
  void fill(MarchArgs<T>& a) const {
    a.origins = data<T>(origins);
    a.directions = data<T>(directions);
    a.jitter = data<T>(jitter);
    a.near = data<T>(near);
    a.far = data<T>(far);
    a.step_size = T(step_size);
    a.contraction = T(contraction);
    a.occupied = data<bool>(occupied);
    for (int axis = 0; axis < 3; ++axis) a.cells[axis] = occupied.size(axis);
    a.words = data<uint64_t>(words);
    a.totals = data<int64_t>(totals);
    a.num_rays = origins.size(0);
  }
};

// The number of samples that stands behind the last of the offsets.
inline int64_t read_count(const Tensor& offsets) {
  const int64_t* last = data<int64_t>(offsets) + offsets.size(0) - 1;
#ifdef NERF_WITH_CUDA
  if (offsets.is_cuda()) return cuda::read(last, current_stream(offsets));
#endif
  return *last;
}

inline void check_capacity(int64_t capacity) {
  if (capacity < 0) reject("capacity is " + std::to_string(capacity) + ", expected 0 (exact) or a number of samples");
}

// Raw density at the vertices of the cells, and the limits of what is visible.
struct DensityInputs {
  Tensor grid, clear;
  GridShape shape;
  double shift, scale, min_transmittance, min_weight;

  DensityInputs(const MarchInputs& rays, const Tensor& density_grid, double density_shift, double density_scale,
                double transmittance, double weight, const std::optional<Tensor>& table)
      : shift(density_shift), scale(density_scale), min_transmittance(transmittance), min_weight(weight) {
    const Tensor& cells = rays.occupied;
    const int64_t x = cells.size(0) + 1, y = cells.size(1) + 1, z = cells.size(2) + 1;
    if (table) {
      check_argument("density_grid", density_grid, rays.origins, rays.origins.scalar_type(), {kAny, 1});
      check_argument("table", *table, rays.origins, ScalarType::Long, {x, y, (z - 1) / kVerticesOfWord + 1});
    } else {
      check_argument("density_grid", density_grid, rays.origins, rays.origins.scalar_type(), {x, y, z, 1});
    }
    shape = grid_shape("density_grid", density_grid, table, z, rays.origins);
    grid = dense(density_grid);
    clear = empty(grid, {grid.is_cuda() ? rays.words.size(0) : 0}, ScalarType::Bool);
  }

  template <class T>
  void fill(MarchVisibleArgs<T>& a) const {
    a.density.raw = data<T>(grid);
    a.clear = data<bool>(clear);
    a.density.table = shape.table;
    for (int axis = 0; axis < 3; ++axis) a.density.vertices[axis] = shape.vertices[axis];
    a.density.shift = T(shift);
    a.density.scale = T(scale);
    a.min_transmittance = T(min_transmittance);
    a.min_weight = T(min_weight);
  }
};

}  // namespace nerf
