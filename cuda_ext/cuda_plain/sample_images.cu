// sample_images on CUDA, plain: one thread per ray.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void sample_images(const SampleImagesArgs<T>& a, Stream stream) {
  for_each(a.num_rays, "sample_images", stream, [a] __device__(int64_t r) { sample_pixel(a, r); });
}

NERF_INSTANTIATE(sample_images, SampleImagesArgs)

}  // namespace nerf::cuda_plain
