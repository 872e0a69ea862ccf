// march_visible: where on each ray there is something to see.
#include "../portable/march_visible.h"

#include "march_inputs.h"

namespace nerf {

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> march_visible(
    const Tensor& origins, const Tensor& directions, const Tensor& jitter, const Tensor& occupied, const Tensor& near,
    const Tensor& far, double step_size, const Tensor& density_grid, double density_shift, double density_scale,
    double min_transmittance, double min_weight, int64_t capacity, double contraction,
    const std::optional<Tensor>& table, const std::optional<Tensor>& lower, const std::optional<Tensor>& scale,
    const std::optional<Tensor>& words, const std::optional<Tensor>& clear) {
  const MarchInputs rays(origins, directions, jitter, occupied, near, far, step_size, contraction, lower, scale, words);
  const DensityInputs density(rays, density_grid, density_shift, density_scale, min_transmittance, min_weight,
                              table, clear);
  check_capacity(capacity);
  const Tensor& o = rays.origins;
  const ScalarType dtype = o.scalar_type();
  const int64_t num_rays = o.size(0);
  Tensor offsets = empty(o, {num_rays + 1}, ScalarType::Long), overflow = zeros(o, {1}, ScalarType::Long);
  const Tensor looks = empty(o, {o.is_cuda() ? num_rays * kLooks : 0}, ScalarType::Long);
  Tensor indices, t_starts, t_ends, coords;
  with_scalar(o, [&](auto scalar) {
    using T = decltype(scalar);
    std::vector<std::vector<T>> found;
    MarchVisibleArgs<T> a = {};
    rays.fill(a);
    density.fill(a);
    a.found = &found;
    a.looks = data<uint64_t>(looks);
    a.ray_offsets = data<int64_t>(offsets);
    a.overflow = data<int64_t>(overflow);
    a.capacity = capacity;
    NERF_CALL(o, march_visible_count, a);
    const int64_t count = capacity ? capacity : read_count(offsets);
    // The rows behind the last ray have index 0 and length 0: on CUDA by the operation itself.
    const auto make = capacity && !o.is_cuda() ? &zeros : &empty;
    indices = make(o, {count}, ScalarType::Long);
    t_starts = make(o, {count}, dtype);
    t_ends = make(o, {count}, dtype);
    coords = make(o, {count, 3}, dtype);
    a.ray_indices = data<int64_t>(indices);
    a.t_starts = data<T>(t_starts);
    a.t_ends = data<T>(t_ends);
    a.coords = data<T>(coords);
    NERF_CALL(o, march_visible_fill, a);
  });
  return {offsets, indices, t_starts, t_ends, coords, overflow};
}

NERF_OPERATION(march_visible,
               "(Tensor origins, Tensor directions, Tensor jitter, Tensor occupied, Tensor near, Tensor far, float "
               "step_size, Tensor density_grid, float density_shift, float density_scale, float min_transmittance, "
               "float min_weight, int capacity=0, float contraction=0.0, Tensor? table=None, Tensor? lower=None, Tensor? scale=None, "
               "Tensor? words=None, Tensor? clear=None) -> (Tensor ray_offsets, Tensor ray_indices, "
               "Tensor t_starts, Tensor t_ends, Tensor coords, Tensor overflow)")

}  // namespace nerf
