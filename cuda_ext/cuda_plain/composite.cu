// composite_rays on CUDA, plain: one thread per ray, and one per sample to clear those that belong to no ray.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void composite(const CompositeArgs<T>& a, Stream stream) {
  for_each(a.num_rays, "composite_rays", stream, [a] __device__(int64_t r) { composite_ray(a, r); });
  for_each(a.num_samples, "composite_rays: tail", stream, [a] __device__(int64_t i) {
    if (i >= a.ray_offsets[a.num_rays]) a.weights[i] = T(0);
  });
}

template <class T>
void composite_backward(const CompositeArgs<T>& a, Stream stream) {
  for_each(a.num_rays, "composite_rays_backward", stream, [a] __device__(int64_t r) { composite_ray_backward(a, r); });
  for_each(a.num_samples, "composite_rays_backward: tail", stream, [a] __device__(int64_t i) {
    if (i >= a.ray_offsets[a.num_rays]) clear_gradients(a, i);
  });
}

NERF_INSTANTIATE(composite, CompositeArgs)
NERF_INSTANTIATE(composite_backward, CompositeArgs)

}  // namespace nerf::cuda_plain
