// composite_rays on the CPU: one ray at a time. What belongs to no ray lies behind the last one and is cleared here.
#include "../portable/composite.h"

#include <algorithm>

#include "../math/channels.h"

namespace nerf::cpu {
namespace {

// body(arguments, ray) for every ray. The channel counts of colors and of features are constants there: rows of known
// length are vectors without a loop.
template <class S, class Body>
void for_rays(const CompositeArgs<S>& a, const Body& body) {
  const auto run = [&](auto channels) {
    parallel_for(a.num_rays, 64, [&](int64_t r) {
      CompositeArgs<S> known = a;
      known.channels = channels;
      body(known, r);
    });
  };
  with_channels<3>(FastChannels(), a.channels, run, [&] { run(a.channels); });
}

}  // namespace

template <class S>
void composite(const CompositeArgs<S>& a, Stream) {
  for_rays(a, [](const CompositeArgs<S>& known, int64_t r) { composite_ray(known, r); });
  std::fill(a.weights + a.offset(a.num_rays), a.weights + a.num_samples, Wide<S>(0));
}

template <class S>
void composite_backward(const CompositeArgs<S>& a, Stream) {
  for_rays(a, [](const CompositeArgs<S>& known, int64_t r) { composite_ray_backward(known, r); });
  const int64_t owned = a.offset(a.num_rays);
  std::fill(a.grad_density + owned, a.grad_density + a.num_samples, Wide<S>(0));
  std::fill(a.grad_values + owned * a.channels, a.grad_values + a.num_samples * a.channels, S{});
}

NERF_INSTANTIATE(composite, CompositeArgs)
NERF_INSTANTIATE(composite_backward, CompositeArgs)
template void composite(const CompositeArgs<BFloat16>&, Stream);
template void composite_backward(const CompositeArgs<BFloat16>&, Stream);

}  // namespace nerf::cpu
