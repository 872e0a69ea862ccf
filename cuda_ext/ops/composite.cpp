// composite_rays and its backward.
#include "../portable/composite.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cmath>
#include <mutex>
#include <set>

#include "../math/channels.h"
#include "operation.h"

namespace nerf {
namespace {

void check_samples(const Tensor& density, const Tensor& values, const Tensor& t_starts, const Tensor& t_ends,
                   const Tensor& ray_offsets) {
  check_floating("density", density);
  const ScalarType dtype = density.scalar_type();
  check_argument("density", density, density, dtype, {kAny});
  const int64_t num_samples = density.size(0);
  const bool is_short = dtype == ScalarType::Float && values.scalar_type() == ScalarType::BFloat16;
  check_argument("values", values, density, is_short ? ScalarType::BFloat16 : dtype, {num_samples, kAny});
  check_channels("values", values.size(1));
  check_argument("t_starts", t_starts, density, dtype, {num_samples});
  check_argument("t_ends", t_ends, density, dtype, {num_samples});
  check_argument("ray_offsets", ray_offsets, density, ScalarType::Long, {kAny});
  if (ray_offsets.size(0) == 0) reject("ray_offsets has shape [0], expected [R+1]");
}

void check_distance(double full_gradient_from) {
  if (!(full_gradient_from >= 0 && std::isfinite(full_gradient_from)))
    reject("full_gradient_from is " + std::to_string(full_gradient_from) + ", expected 0 or a distance");
}

// body(BFloat16()), or as with_scalar.
template <class Body>
void with_samples(const Tensor& density, const Tensor& values, const Body& body) {
  if (values.scalar_type() == ScalarType::BFloat16) body(BFloat16());
  else with_scalar(density, body);
}

template <class S>
CompositeArgs<S> composite_arguments(const Tensor& density, const Tensor& values, const Tensor& t_starts,
                                     const Tensor& t_ends, const Tensor& ray_offsets, const Tensor& weights,
                                     double min_transmittance, double full_gradient_from) {
  using T = Wide<S>;
  CompositeArgs<S> a = {};
  a.density = data<T>(density);
  a.values = data<S>(values);
  a.t_starts = data<T>(t_starts);
  a.t_ends = data<T>(t_ends);
  a.ray_offsets = data<int64_t>(ray_offsets);
  a.weights = data<T>(weights);
  a.num_rays = ray_offsets.size(0) - 1;
  a.num_samples = density.size(0);
  a.channels = values.size(1);
  a.min_transmittance = T(min_transmittance);
  a.full_gradient_from = T(full_gradient_from);
  return a;
}

template <int... kCounts>
std::string listed(Channels<kCounts...>) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + std::to_string(kCounts)), ...);
  return text;
}

// Says so where features have no fast kernel, once for each number of channels.
void note_slow_channels(int64_t channels) {
  if (channels == 0 || channels == 3 || is_fast(FastChannels(), channels)) return;
  static std::mutex mutex;
  static std::set<int64_t> noted;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!noted.insert(channels).second) return;
  const std::string message = "composite_rays: values has " + std::to_string(channels) +
                              " channels, which have no fast kernel; fast are 0, 3, " + listed(FastChannels());
  aoti_torch_warn("composite_rays", __FILE__, __LINE__, message.c_str());
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> composite_rays(const Tensor& density, const Tensor& values,
                                                          const Tensor& t_starts, const Tensor& t_ends,
                                                          const Tensor& ray_offsets, double min_transmittance,
                                                          double full_gradient_from) {
  check_samples(density, values, t_starts, t_ends, ray_offsets);
  check_distance(full_gradient_from);
  const Tensor sigma = dense(density), v = dense(values), starts = dense(t_starts), ends = dense(t_ends),
               offsets = dense(ray_offsets);
  check_offsets(offsets, sigma.size(0));
  const ScalarType dtype = sigma.scalar_type();
  const int64_t num_rays = offsets.size(0) - 1;
  if (dtype == ScalarType::Float) note_slow_channels(v.size(1));
  Tensor out = empty(sigma, {num_rays, v.size(1)}, dtype), opacity = empty(sigma, {num_rays}, dtype),
         depth = empty(sigma, {num_rays}, dtype);
  Tensor weights = empty(sigma, {sigma.size(0)}, dtype);
  with_samples(sigma, v, [&](auto storage) {
    using S = decltype(storage);
    using T = Wide<S>;
    CompositeArgs<S> a = composite_arguments<S>(sigma, v, starts, ends, offsets, weights, min_transmittance,
                                                 full_gradient_from);
    a.out_values = data<T>(out);
    a.opacity = data<T>(opacity);
    a.depth = data<T>(depth);
    NERF_CALL(sigma, composite, a);
  });
  return {out, opacity, depth, weights};
}

std::tuple<Tensor, Tensor> composite_rays_backward(const Tensor& grad_values, const Tensor& grad_opacity,
                                                   const std::optional<Tensor>& grad_depth,
                                                   const std::optional<Tensor>& grad_weights, const Tensor& density,
                                                   const Tensor& values, const Tensor& t_starts, const Tensor& t_ends,
                                                   const Tensor& ray_offsets, const Tensor& weights,
                                                   double min_transmittance, double full_gradient_from) {
  check_samples(density, values, t_starts, t_ends, ray_offsets);
  const ScalarType dtype = density.scalar_type();
  const int64_t num_rays = ray_offsets.size(0) - 1, num_samples = density.size(0);
  check_argument("grad_values", grad_values, density, dtype, {num_rays, values.size(1)});
  check_argument("grad_opacity", grad_opacity, density, dtype, {num_rays});
  check_distance(full_gradient_from);
  if (grad_depth) check_argument("grad_depth", *grad_depth, density, dtype, {num_rays});
  if (grad_weights) check_argument("grad_weights", *grad_weights, density, dtype, {num_samples});
  check_argument("weights", weights, density, dtype, {num_samples});
  const Tensor sigma = dense(density), v = dense(values), starts = dense(t_starts), ends = dense(t_ends),
               offsets = dense(ray_offsets), w = dense(weights), gv = dense(grad_values), go = dense(grad_opacity),
               gd = grad_depth ? dense(*grad_depth) : go, gw = grad_weights ? dense(*grad_weights) : go;
  check_offsets(offsets, num_samples);
  Tensor grad_density = empty(sigma, {num_samples}, dtype);
  Tensor grad_of_values = empty(sigma, {num_samples, v.size(1)}, v.scalar_type());
  with_samples(sigma, v, [&](auto storage) {
    using S = decltype(storage);
    using T = Wide<S>;
    CompositeArgs<S> a = composite_arguments<S>(sigma, v, starts, ends, offsets, w, min_transmittance,
                                                 full_gradient_from);
    a.grad_out_values = data<T>(gv);
    a.grad_opacity = data<T>(go);
    a.grad_depth = grad_depth ? data<T>(gd) : nullptr;
    a.grad_weights = grad_weights ? data<T>(gw) : nullptr;
    a.grad_density = data<T>(grad_density);
    a.grad_values = data<S>(grad_of_values);
    NERF_CALL(sigma, composite_backward, a);
  });
  return {grad_density, grad_of_values};
}

NERF_OPERATION(composite_rays,
               "(Tensor density, Tensor values, Tensor t_starts, Tensor t_ends, Tensor ray_offsets, float "
               "min_transmittance, float full_gradient_from=0.0) -> (Tensor values, Tensor opacity, Tensor depth, Tensor "
               "weights)")
NERF_OPERATION(composite_rays_backward,
               "(Tensor grad_values, Tensor grad_opacity, Tensor? grad_depth, Tensor? grad_weights, Tensor density, "
               "Tensor values, Tensor t_starts, Tensor t_ends, Tensor ray_offsets, Tensor weights, float "
               "min_transmittance, float full_gradient_from=0.0) -> (Tensor grad_density, Tensor grad_of_values)")

}  // namespace nerf
