// camera_rays on the CPU.
#include "parallel.h"

namespace nerf::cpu {

template <class T>
void camera_rays(const CameraRaysArgs<T>& a, Stream) {
  parallel_for(a.num_pixels, 2048, [a](int64_t p) { make_camera_rays(a, p); });
}

NERF_INSTANTIATE(camera_rays, CameraRaysArgs)

}  // namespace nerf::cpu
