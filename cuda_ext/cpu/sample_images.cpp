// sample_images on the CPU. Nearly every pixel of a batch is a wait for memory, so those of the rays to come are asked for
// ahead.
#include "../portable/sample_images.h"

namespace nerf::cpu {
namespace {

constexpr int64_t kAhead = 32;  // rays

}  // namespace

template <class T>
void sample_images(const SampleImagesArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 2048, [a](int64_t r) {
    if (r + kAhead < a.num_rays && is_inside(a, r + kAhead))
      __builtin_prefetch(a.images + a.pixel_indices[r + kAhead] * a.channels);
    sample_pixel(a, r);
  });
}

NERF_INSTANTIATE(sample_images, SampleImagesArgs)

}  // namespace nerf::cpu
