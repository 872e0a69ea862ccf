// distortion_loss on CUDA, plain: one thread per ray.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void distortion(const DistortionArgs<T>& a, Stream stream) {
  for_each(a.num_rays, "distortion_loss", stream, [a] __device__(int64_t r) { distortion_ray(a, r); });
}

template <class T>
void distortion_backward(const DistortionArgs<T>& a, Stream stream) {
  for_each(a.num_rays, "distortion_loss_backward", stream,
           [a] __device__(int64_t r) { distortion_ray_backward(a, r); });
}

NERF_INSTANTIATE(distortion, DistortionArgs)
NERF_INSTANTIATE(distortion_backward, DistortionArgs)

}  // namespace nerf::cuda_plain
