// composite_rays: one ray at a time, then one sample to clear those behind ray_offsets[R], which belong to no ray.
#pragma once

#include "../device.h"
#include "../math/composite.h"

namespace nerf {
namespace portable {

template <class S>
void composite(const Device& device, const CompositeArgs<S>& a) {
  device.for_each("composite_rays", a.num_rays, [a] ON_DEVICE(int64_t r) { composite_ray(a, r); });
  device.for_each("composite_rays: tail", a.num_samples, [a] ON_DEVICE(int64_t i) {
    if (i >= a.offset(a.num_rays)) a.weights[i] = 0;
  });
}

template <class S>
void composite_backward(const Device& device, const CompositeArgs<S>& a) {
  device.for_each("composite_rays_backward", a.num_rays, [a] ON_DEVICE(int64_t r) { composite_ray_backward(a, r); });
  device.for_each("composite_rays_backward: tail", a.num_samples, [a] ON_DEVICE(int64_t i) {
    if (i >= a.offset(a.num_rays)) clear_gradients(a, i);
  });
}

}  // namespace portable

NERF_PORTABLE(composite, CompositeArgs)
NERF_BODY_FOR(composite, CompositeArgs, BFloat16)
NERF_PORTABLE(composite_backward, CompositeArgs)
NERF_BODY_FOR(composite_backward, CompositeArgs, BFloat16)

}  // namespace nerf
