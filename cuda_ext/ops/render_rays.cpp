// render_rays: what each ray sees, in one walk.
#include "../portable/render_rays.h"

#include "march_inputs.h"

namespace nerf {

std::tuple<Tensor, Tensor, Tensor> render_rays(const Tensor& origins, const Tensor& directions, const Tensor& jitter,
                                               const Tensor& occupied, const Tensor& near, const Tensor& far,
                                               double step_size, const Tensor& density_grid, double density_shift,
                                               double density_scale, double min_transmittance, double min_weight,
                                               const Tensor& values_grid, double contraction, int64_t rays_per_pixel,
                                               const std::optional<Tensor>& table,
                                               const std::optional<Tensor>& lower, const std::optional<Tensor>& scale,
                                               const std::optional<Tensor>& words,
                                               const std::optional<Tensor>& clear) {
  const MarchInputs rays(origins, directions, jitter, occupied, near, far, step_size, contraction, lower, scale, words);
  const DensityInputs density(rays, density_grid, density_shift, density_scale, min_transmittance, min_weight,
                              table, clear);
  const Tensor& o = rays.origins;
  const ScalarType dtype = o.scalar_type();
  Shape expected(density.grid.sizes().begin(), density.grid.sizes().end());
  expected.back() = kAny;  // of the density's vertices
  const bool is_short = dtype == ScalarType::Float && values_grid.scalar_type() == ScalarType::Half;
  check_argument("values_grid", values_grid, o, is_short ? ScalarType::Half : dtype, expected);
  const Tensor grid = dense(values_grid);
  const int64_t num_rays = o.size(0), channels = expected.size() == 2 ? grid.size(1) : grid.size(3);
  if (rays_per_pixel != 1 && rays_per_pixel != 2 && rays_per_pixel != 4)
    reject("rays_per_pixel is " + std::to_string(rays_per_pixel) + ", expected 1, 2 or 4");
  if (num_rays % rays_per_pixel != 0)
    reject("rays_per_pixel is " + std::to_string(rays_per_pixel) + ", expected a divisor of " +
           std::to_string(num_rays) + ", the number of rays");
  Tensor values = empty(o, {num_rays / rays_per_pixel, channels}, dtype), opacity = empty(o, {num_rays}, dtype),
         depth = empty(o, {num_rays}, dtype);
  const auto render = [&](auto storage) {
    using S = decltype(storage);
    using T = Wide<S>;
    RenderRaysArgs<S> a = {};
    rays.fill(a);
    density.fill(a);
    a.values_grid = data<Value<S>>(grid);
    a.channels = channels;
    a.rays_per_pixel = rays_per_pixel;
    a.values = data<T>(values);
    a.opacity = data<T>(opacity);
    a.depth = data<T>(depth);
    NERF_CALL(o, render_rays, a);
  };
  if (is_short) render(ShortValues());
  else with_scalar(o, render);
  return {values, opacity, depth};
}

NERF_OPERATION(
    render_rays,
    "(Tensor origins, Tensor directions, Tensor jitter, Tensor occupied, Tensor near, Tensor far, float step_size, "
    "Tensor density_grid, float density_shift, float density_scale, float min_transmittance, float min_weight, Tensor "
    "values_grid, float contraction=0.0, int rays_per_pixel=1, Tensor? table=None, Tensor? lower=None, Tensor? "
    "scale=None, Tensor? words=None, Tensor? clear=None) -> (Tensor values, Tensor opacity, Tensor depth)")

}  // namespace nerf
