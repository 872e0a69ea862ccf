// camera_rays on the CPU.
#include "parallel.h"

namespace nerf::cpu {

template <class T>
void camera_rays(const CameraRaysArgs<T>& a, Stream) {
  const int64_t grain = max2<int64_t>(2048 / max2<int64_t>(a.rays_per_pixel, 1), 1);
  parallel_for(a.num_pixels, grain, [a](int64_t p) { make_camera_rays(a, p); });
}

NERF_INSTANTIATE(camera_rays, CameraRaysArgs)

}  // namespace nerf::cpu
