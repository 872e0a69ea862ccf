// march_rays: where on each ray to look.
#include "../portable/march.h"

#include "march_inputs.h"

namespace nerf {

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> march_rays(const Tensor& origins, const Tensor& directions,
                                                              const Tensor& jitter, const Tensor& occupied,
                                                              const Tensor& near, const Tensor& far, double step_size,
                                                              int64_t capacity, double contraction,
                                                              const std::optional<Tensor>& lower,
                                                              const std::optional<Tensor>& scale,
                                                              const std::optional<Tensor>& words) {
  const MarchInputs rays(origins, directions, jitter, occupied, near, far, step_size, contraction, lower, scale, words);
  check_capacity(capacity);
  const Tensor& o = rays.origins;
  const ScalarType dtype = o.scalar_type();
  const int64_t num_rays = o.size(0);
  Tensor offsets = empty(o, {num_rays + 1}, ScalarType::Long), overflow = zeros(o, {1}, ScalarType::Long);
  Tensor pieces, indices, t_starts, t_ends;
  with_scalar(o, [&](auto scalar) {
    using T = decltype(scalar);
    MarchArgs<T> a = {};
    rays.fill(a);
    pieces = empty(o, {o.is_cuda() ? 32 * num_rays : 0}, ScalarType::Int);
    a.piece_starts = data<int32_t>(pieces);
    a.ray_offsets = data<int64_t>(offsets);
    a.overflow = data<int64_t>(overflow);
    a.capacity = capacity;
    NERF_CALL(o, march_count, a);
    if (capacity == 0) {
      const int64_t count = read_count(offsets);
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

NERF_OPERATION(march_rays,
               "(Tensor origins, Tensor directions, Tensor jitter, Tensor occupied, Tensor near, Tensor far, float "
               "step_size, int capacity=0, float contraction=0.0, Tensor? lower=None, Tensor? scale=None, Tensor? "
               "words=None) -> (Tensor ray_offsets, Tensor ray_indices, Tensor t_starts, Tensor t_ends, Tensor overflow)")

}  // namespace nerf
