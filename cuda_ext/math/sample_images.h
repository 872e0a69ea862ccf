// Fetching pixels from images kept as bytes.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct SampleImagesArgs {
  const uint8_t* images;  // [I*H*W,C]
  int64_t num_pixels, channels;
  const int64_t* pixel_indices;  // [R]
  int64_t num_rays;
  T* out;  // [R,C] in [0,1]
};

// Channel c of one pixel. An index outside the images reads NaN: the loss shows it at once, and no host read is needed
// to check.
template <class T>
HOST_DEVICE void sample_channel(const SampleImagesArgs<T>& a, int64_t r, int64_t c) {
  const int64_t pixel = a.pixel_indices[r];
  const bool valid = pixel >= 0 && pixel < a.num_pixels;
  a.out[r * a.channels + c] = valid ? T(a.images[pixel * a.channels + c]) / T(255) : T(NAN);
}

template <class T>
HOST_DEVICE void sample_pixel(const SampleImagesArgs<T>& a, int64_t r) {
  for (int64_t c = 0; c < a.channels; ++c) sample_channel(a, r, c);
}

}  // namespace nerf
