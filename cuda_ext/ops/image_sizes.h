// Checks of the sizes of images whose pixels are counted in one row.
#pragma once

#include "../math/camera_rays.h"
#include "contents.h"

namespace nerf {

inline void check_side(const std::string& found, int64_t side) {
  if (side < 1 || side > kLongestSide)
    reject(found + std::to_string(side) + ", expected 1 to " + std::to_string(kLongestSide));
}

// That images of sizes [I,2] begin at first_pixels [I+1]. Returns the number of all pixels.
inline int64_t check_images(const Tensor& sizes, const Tensor& first_pixels) {
  const int64_t *size = data<int64_t>(sizes), *first = data<int64_t>(first_pixels);
  int64_t pixels = 0;
  for (int64_t i = 0; i <= sizes.size(0); ++i) {
    if (first[i] != pixels)
      reject("first_pixels has the value " + std::to_string(first[i]) + " at " + std::to_string(i) + ", expected " +
             std::to_string(pixels));
    if (i == sizes.size(0)) break;
    for (int side = 0; side < 2; ++side) check_side("sizes has the value ", size[2 * i + side]);
    if (__builtin_add_overflow(pixels, size[2 * i] * size[2 * i + 1], &pixels))
      reject("sizes has too many pixels, expected fewer than 2^63");
  }
  return pixels;
}

}  // namespace nerf
