// render_rays on CUDA, plain: one thread per pixel.
#include "../cuda/march_offsets.cuh"

namespace nerf::cuda_plain {

template <class T>
void render_rays(const RenderRaysArgs<T>& a, Stream stream) {
  cuda::pack_occupancy(a, stream);
  cuda::for_each(a.num_rays / a.rays_per_pixel, "render_rays", stream,
                 [a] __device__(int64_t p) { render_pixel(a, p); });
}

NERF_INSTANTIATE(render_rays, RenderRaysArgs)

}  // namespace nerf::cuda_plain
