// sample_images on CUDA: a thread per value, so that the channels of a pixel do not wait for each other. The batches of
// training are so small that starting a kernel takes longer than its work.
#include "launch.cuh"

namespace nerf::cuda {

template <class T>
void sample_images(const SampleImagesArgs<T>& a, Stream stream) {
  for_each(a.num_rays * a.channels, "sample_images", stream, [a] __device__(int64_t i) {
    const Place p = place(i, a.channels);
    sample_channel(a, p.row, p.column);
  });
}

NERF_INSTANTIATE(sample_images, SampleImagesArgs)

}  // namespace nerf::cuda
