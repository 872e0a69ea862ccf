// composite_rays on CUDA, plain: one thread per ray.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void composite(const CompositeArgs<T>& a, Stream stream) {
  for_each(a.num_rays, "composite_rays", stream, [a] __device__(int64_t r) { composite_ray(a, r); });
}

template <class T>
void composite_backward(const CompositeArgs<T>& a, Stream stream) {
  for_each(a.num_rays, "composite_rays_backward", stream, [a] __device__(int64_t r) { composite_ray_backward(a, r); });
}

NERF_INSTANTIATE(composite, CompositeArgs)
NERF_INSTANTIATE(composite_backward, CompositeArgs)

}  // namespace nerf::cuda_plain
