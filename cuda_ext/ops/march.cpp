// march_rays: where on each ray to look.
#include "ops.h"

namespace nerf {

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> march_rays(const Tensor& origins, const Tensor& directions,
                                                              const Tensor& jitter, const Tensor& occupied,
                                                              const Tensor& near, const Tensor& far, double step_size,
                                                              int64_t capacity, double contraction) {
  check_floating("origins", origins);
  const ScalarType dtype = origins.scalar_type();
  check_argument("origins", origins, origins, dtype, {kAny, 3});
  const int64_t num_rays = origins.size(0);
  check_argument("directions", directions, origins, dtype, {num_rays, 3});
  check_argument("jitter", jitter, origins, dtype, {num_rays});
  check_argument("near", near, origins, dtype, {num_rays});
  check_argument("far", far, origins, dtype, {num_rays});
  check_argument("occupied", occupied, origins, ScalarType::Bool, {kAny, kAny, kAny});
  if (occupied.numel() == 0)
    reject("occupied has shape " + shape_name(occupied.sizes()) + ", expected at least one cell");
  if (!(step_size > 0)) reject("step_size is " + std::to_string(step_size) + ", expected a positive length");
  if (capacity < 0) reject("capacity is " + std::to_string(capacity) + ", expected 0 (exact) or a number of samples");

  if (!(contraction >= 0 && contraction < INFINITY))
    reject("contraction is " + std::to_string(contraction) + ", expected 0 (none) or the thickness of a shell");

  const Tensor o = dense(origins), d = dense(directions), j = dense(jitter), cells = dense(occupied),
               lower = dense(near), upper = dense(far);
  Tensor offsets = empty(o, {num_rays + 1}, ScalarType::Long), overflow = zeros(o, {1}, ScalarType::Long);
  Tensor words, pieces, indices, t_starts, t_ends;
  with_scalar(o, [&](auto scalar) {
    using T = decltype(scalar);
    MarchArgs<T> a = {};
    a.origins = data<T>(o);
    a.directions = data<T>(d);
    a.jitter = data<T>(j);
    a.near = data<T>(lower);
    a.far = data<T>(upper);
    a.step_size = T(step_size);
    a.contraction = T(contraction);
    a.occupied = data<bool>(cells);
    for (int axis = 0; axis < 3; ++axis) a.cells[axis] = cells.size(axis);
    words = empty(o, {a.occupancy().count()}, ScalarType::Long);
    a.words = data<uint64_t>(words);
    pieces = empty(o, {o.is_cuda() ? 32 * num_rays : 0}, ScalarType::Int);
    a.piece_starts = data<int32_t>(pieces);
    a.num_rays = num_rays;
    a.ray_offsets = data<int64_t>(offsets);
    a.overflow = data<int64_t>(overflow);
    a.capacity = capacity;
    NERF_CALL(o, march_count, a);
    if (capacity == 0) {
      const int64_t count = NERF_CALL(o, read, a.ray_offsets + num_rays);
      indices = empty(o, {count}, ScalarType::Long);
      t_starts = empty(o, {count}, dtype);
      t_ends = empty(o, {count}, dtype);
    } else {  // the rows behind the last ray keep index 0 and length 0
      indices = zeros(o, {capacity}, ScalarType::Long);
      t_starts = zeros(o, {capacity}, dtype);
      t_ends = zeros(o, {capacity}, dtype);
    }
    a.ray_indices = data<int64_t>(indices);
    a.t_starts = data<T>(t_starts);
    a.t_ends = data<T>(t_ends);
    NERF_CALL(o, march_fill, a);
  });
  return {offsets, indices, t_starts, t_ends, overflow};
}

}  // namespace nerf
