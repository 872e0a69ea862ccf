// camera_rays on CUDA, plain: one thread per pixel.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void camera_rays(const CameraRaysArgs<T>& a, Stream stream) {
  for_each(a.num_pixels, "camera_rays", stream, [a] __device__(int64_t p) { make_camera_rays(a, p); });
}

NERF_INSTANTIATE(camera_rays, CameraRaysArgs)

}  // namespace nerf::cuda_plain
