// distortion_loss on the CPU: one ray at a time.
#include "parallel.h"

namespace nerf::cpu {

template <class T>
void distortion(const DistortionArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 64, [&](int64_t r) { distortion_ray(a, r); });
}

template <class T>
void distortion_backward(const DistortionArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 64, [&](int64_t r) { distortion_ray_backward(a, r); });
}

NERF_INSTANTIATE(distortion, DistortionArgs)
NERF_INSTANTIATE(distortion_backward, DistortionArgs)

}  // namespace nerf::cpu
