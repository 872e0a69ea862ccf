// camera_rays on CUDA: one thread per ray, since a batch has few pixels. The rays of a warp are rows of three numbers side
// by side, which it writes together: 32 numbers next to each other at a time.
#include "../portable/camera_rays.h"
#include "launch.cuh"

namespace nerf::cuda {
namespace {

constexpr int kRayBlock = 64;

template <class T>
__global__ void __launch_bounds__(kRayBlock) camera_rays_kernel(CameraRaysArgs<T> a) {
  __shared__ T staged[kRayBlock / 32][2][3 * 32];
  const int64_t num_rays = a.num_pixels * a.rays_per_pixel;
  const int64_t r = int64_t(blockIdx.x) * kRayBlock + threadIdx.x, first = r / 32 * 32;
  const int lane = threadIdx.x % 32;
  auto& rows = staged[threadIdx.x / 32];
  if (r < num_rays) {
    const Place ray = place(r, a.rays_per_pixel);
    make_camera_ray(a, ray.row, ray.column, rows[0] + 3 * lane, rows[1] + 3 * lane);
  }
  __syncwarp();
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    const int64_t i = 3 * first + 32 * part + lane;
    if (i >= 3 * num_rays) return;
    a.origins[i] = rows[0][32 * part + lane];
    a.directions[i] = rows[1][32 * part + lane];
  }
}

}  // namespace

template <class T>
void camera_rays(const CameraRaysArgs<T>& a, Stream stream) {
  launch<kRayBlock>(camera_rays_kernel<T>, a.num_pixels * a.rays_per_pixel, "camera_rays", stream, a);
}

NERF_INSTANTIATE(camera_rays, CameraRaysArgs)

}  // namespace nerf::cuda
