// distortion_loss: one ray at a time.
#pragma once

#include "../device.h"
#include "../math/distortion.h"

namespace nerf {
namespace portable {

template <class T>
void distortion(const Device& device, const DistortionArgs<T>& a) {
  device.for_each("distortion_loss", a.num_rays, 64, [a] ON_DEVICE(int64_t r) { distortion_ray(a, r); });
}

template <class T>
void distortion_backward(const Device& device, const DistortionArgs<T>& a) {
  device.for_each("distortion_loss_backward", a.num_rays, 64,
                  [a] ON_DEVICE(int64_t r) { distortion_ray_backward(a, r); });
}

}  // namespace portable

NERF_PORTABLE(distortion, DistortionArgs)
NERF_PORTABLE(distortion_backward, DistortionArgs)

}  // namespace nerf
