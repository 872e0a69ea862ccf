// What the marching operations have in common on the torch side: rays, occupancy, density.
#pragma once

#include "../march_offsets.h"
#include "../math/march_visible.h"
#include "operation.h"
#include "row_table.h"

namespace nerf {

// The rays and cells of a march, checked and dense; the occupancy's words, or scratch for them; on CUDA scratch for sums
// over rays.
struct MarchInputs {
  Tensor origins, directions, jitter, occupied, near, far, lower, scale, words, totals;
  double step_size, contraction;
  bool in_grid_units, has_words;

  MarchInputs(const Tensor& o, const Tensor& d, const Tensor& j, const Tensor& cells, const Tensor& begin,
              const Tensor& end, double step, double shell, const std::optional<Tensor>& grid_lower,
              const std::optional<Tensor>& grid_scale, const std::optional<Tensor>& known_words)
      : step_size(step), contraction(shell), in_grid_units(!grid_scale), has_words(known_words) {
    check_floating("origins", o);
    const ScalarType dtype = o.scalar_type();
    check_argument("origins", o, o, dtype, {kAny, 3});
    const int64_t num_rays = o.size(0);
    check_argument("directions", d, o, dtype, {num_rays, 3});
    check_argument("jitter", j, o, dtype, {kAny});
    if (j.size(0) != num_rays && (j.size(0) == 0 || num_rays % j.size(0) != 0))
      reject("jitter has shape " + shape_name(j.sizes()) + ", expected [" + std::to_string(num_rays) +
             "] or one number for every few rays side by side");
    check_argument("near", begin, o, dtype, {begin.dim() == 1 && begin.size(0) == 1 ? 1 : num_rays});
    check_argument("far", end, o, dtype, {end.dim() == 1 && end.size(0) == 1 ? 1 : num_rays});
    if (bool(grid_lower) != bool(grid_scale))
      reject((grid_scale ? "lower" : "scale") + std::string(" is missing, expected both or none: lower and scale"));
    if (grid_scale) {
      check_argument("lower", *grid_lower, o, dtype, {3});
      check_argument("scale", *grid_scale, o, dtype, {3});
      lower = dense(*grid_lower), scale = dense(*grid_scale);
    }
    check_argument("occupied", cells, o, ScalarType::Bool, {kAny, kAny, kAny});
    if (cells.numel() == 0) reject("occupied has shape " + shape_name(cells.sizes()) + ", expected at least one cell");
    with_scalar(o, [&](auto scalar) {  // as it is computed with
      using T = decltype(scalar);
      if (!(T(step) > T(0) && T(step) < T(INFINITY)))
        reject("step_size is " + number_name(step) + ", expected a positive length");
      if (!(T(shell) >= T(0) && T(shell) < T(INFINITY)))
        reject("contraction is " + number_name(shell) + ", expected 0 (none) or the thickness of a shell");
    });
    origins = dense(o), directions = dense(d), jitter = dense(j), occupied = dense(cells), near = dense(begin),
    far = dense(end);
    OccupancyWords packed = {};
    for (int axis = 0; axis < 3; ++axis) packed.cells[axis] = cells.size(axis);
    const Shape size = {packed.size(0), packed.size(1), packed.size(2)};
    if (has_words) check_argument("words", *known_words, o, ScalarType::Long, size);
    words = has_words ? dense(*known_words) : empty(origins, size, ScalarType::Long);
    totals = empty(origins, {o.is_cuda() ? num_rays / kRaysOfTotal + 1 : 0}, ScalarType::Long);
  }

  template <class T>
  void fill(MarchArgs<T>& a) const {
    a.origins = data<T>(origins);
    a.directions = data<T>(directions);
    a.lower = in_grid_units ? nullptr : data<T>(lower);
    a.scale = in_grid_units ? nullptr : data<T>(scale);
    a.jitter = data<T>(jitter);
    a.rays_of_jitter = origins.size(0) / max2<int64_t>(jitter.size(0), 1);
    a.near = data<T>(near);
    a.far = data<T>(far);
    a.near_stride = near.size(0) == origins.size(0);
    a.far_stride = far.size(0) == origins.size(0);
    a.step_size = T(step_size);
    a.contraction = T(contraction);
    a.occupied = data<bool>(occupied);
    for (int axis = 0; axis < 3; ++axis) a.cells[axis] = occupied.size(axis);
    a.words = data<uint64_t>(words);
    a.has_words = has_words;
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
  bool has_clear;

  DensityInputs(const MarchInputs& rays, const Tensor& density_grid, double density_shift, double density_scale,
                double transmittance, double weight, const std::optional<Tensor>& table,
                const std::optional<Tensor>& known_clear)
      : shift(density_shift), scale(density_scale), min_transmittance(transmittance), min_weight(weight),
        has_clear(known_clear) {
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
    const Shape size(rays.words.sizes().begin(), rays.words.sizes().end());
    if (has_clear) check_argument("clear", *known_clear, rays.origins, ScalarType::Bool, size);
    clear = has_clear ? dense(*known_clear) : empty(grid, grid.is_cuda() ? size : Shape{0}, ScalarType::Bool);
  }

  template <class T>
  void fill(MarchVisibleArgs<T>& a) const {
    a.density.raw = data<T>(grid);
    a.clear = data<bool>(clear);
    a.has_clear = has_clear;
    a.density.table = shape.table;
    for (int axis = 0; axis < 3; ++axis) a.density.vertices[axis] = shape.vertices[axis];
    a.density.shift = T(shift);
    a.density.scale = T(scale);
    a.min_transmittance = T(min_transmittance);
    a.min_weight = T(min_weight);
  }
};

}  // namespace nerf
