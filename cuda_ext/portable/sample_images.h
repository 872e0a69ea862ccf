// sample_images: one ray at a time.
#pragma once

#include "../device.h"
#include "../math/sample_images.h"

namespace nerf {
namespace portable {

template <class T>
void sample_images(const Device& device, const SampleImagesArgs<T>& a) {
  device.for_each("sample_images", a.num_rays, [a] ON_DEVICE(int64_t r) { sample_pixel(a, r); });
}

}  // namespace portable

NERF_PORTABLE(sample_images, SampleImagesArgs)

}  // namespace nerf
