// activate_density: one number at a time.
#pragma once

#include "../device.h"
#include "../math/activate_density.h"

namespace nerf {
namespace portable {

template <class T>
void activate_density(const Device& device, const ActivateDensityArgs<T>& a) {
  device.for_each("activate_density", a.count,
                  [a] ON_DEVICE(int64_t i) { a.out[i] = softplus(a.raw[i] + a.shift) * a.scale; });
}

template <class T>
void activate_density_backward(const Device& device, const ActivateDensityArgs<T>& a) {
  device.for_each("activate_density_backward", a.count, [a] ON_DEVICE(int64_t i) {
    a.grad_raw[i] = a.grad_out[i] * a.scale * softplus_slope(a.raw[i] + a.shift);
  });
}

}  // namespace portable

NERF_PORTABLE(activate_density, ActivateDensityArgs)
NERF_PORTABLE(activate_density_backward, ActivateDensityArgs)

}  // namespace nerf
