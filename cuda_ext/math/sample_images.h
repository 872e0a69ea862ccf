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

// Whether the ray's pixel is one of the images'.
template <class T>
HOST_DEVICE bool is_inside(const SampleImagesArgs<T>& a, int64_t r) {
  return a.pixel_indices[r] >= 0 && a.pixel_indices[r] < a.num_pixels;
}

// Channel c of one pixel. An index outside the images reads NaN: the loss shows it at once, and no host read is needed
// to check.
template <class T>
HOST_DEVICE void sample_channel(const SampleImagesArgs<T>& a, int64_t r, int64_t c) {
  a.out[r * a.channels + c] = is_inside(a, r) ? T(a.images[a.pixel_indices[r] * a.channels + c]) / T(255) : T(NAN);
}

template <class T>
HOST_DEVICE void sample_pixel(const SampleImagesArgs<T>& a, int64_t r) {
  for (int64_t c = 0; c < a.channels; ++c) sample_channel(a, r, c);
}

}  // namespace nerf
