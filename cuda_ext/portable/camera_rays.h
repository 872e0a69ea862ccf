// camera_rays: one pixel at a time.
#pragma once

#include "../device.h"
#include "../math/camera_rays.h"

namespace nerf {
namespace portable {

template <class T>
void camera_rays(const Device& device, const CameraRaysArgs<T>& a) {
  const int64_t grain = max2<int64_t>(2048 / max2<int64_t>(a.rays_per_pixel, 1), 1);
  device.for_each("camera_rays", a.num_pixels, grain, [a] ON_DEVICE(int64_t p) { make_camera_rays(a, p); });
}

}  // namespace portable

NERF_PORTABLE(camera_rays, CameraRaysArgs)

}  // namespace nerf
