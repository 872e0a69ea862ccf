// sample_images on CUDA: nothing beats the plain kernel so far.
#include "launch.cuh"

namespace nerf::cuda {

template <class T>
void sample_images(const SampleImagesArgs<T>& a, Stream stream) {
  cuda_plain::sample_images(a, stream);
}

NERF_INSTANTIATE(sample_images, SampleImagesArgs)

}  // namespace nerf::cuda
