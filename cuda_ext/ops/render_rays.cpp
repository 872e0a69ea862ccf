// render_rays: what each ray sees, in one walk.
#include "march_inputs.h"

namespace nerf {

std::tuple<Tensor, Tensor, Tensor> render_rays(const Tensor& origins, const Tensor& directions, const Tensor& jitter,
                                               const Tensor& occupied, const Tensor& near, const Tensor& far,
                                               double step_size, const Tensor& density_grid, double density_shift,
                                               double density_scale, double min_transmittance, double min_weight,
                                               const Tensor& values_grid, double contraction) {
  const MarchInputs rays(origins, directions, jitter, occupied, near, far, step_size, contraction);
  const DensityInputs density(rays, density_grid, density_shift, density_scale, min_transmittance, min_weight);
  const Tensor& o = rays.origins;
  const ScalarType dtype = o.scalar_type();
  check_argument("values_grid", values_grid, o, dtype,
                 {density.grid.size(0), density.grid.size(1), density.grid.size(2), kAny});
  const Tensor grid = dense(values_grid);
  const int64_t num_rays = o.size(0), channels = grid.size(3);
  Tensor values = empty(o, {num_rays, channels}, dtype), opacity = empty(o, {num_rays}, dtype),
         depth = empty(o, {num_rays}, dtype);
  with_scalar(o, [&](auto scalar) {
    using T = decltype(scalar);
    RenderRaysArgs<T> a = {};
    rays.fill(a);
    density.fill(a);
    a.values_grid = data<T>(grid);
    a.channels = channels;
    a.values = data<T>(values);
    a.opacity = data<T>(opacity);
    a.depth = data<T>(depth);
    NERF_CALL(o, render_rays, a);
  });
  return {values, opacity, depth};
}

}  // namespace nerf
