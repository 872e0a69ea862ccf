// sample_images on the CPU.
#include "parallel.h"

namespace nerf::cpu {

template <class T>
void sample_images(const SampleImagesArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 2048, [&](int64_t r) { sample_pixel(a, r); });
}

NERF_INSTANTIATE(sample_images, SampleImagesArgs)

}  // namespace nerf::cpu
