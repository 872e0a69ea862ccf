// A pixel some columns and rows beside another one, in the same image:
//
//   column' = nearest of 0 ... width - 1 to column + round(shift_0),   row' likewise
//
// Rounded to even and computed in float64 whatever shifts are: the same pixels are found everywhere.
#pragma once

#include "camera_rays.h"

namespace nerf {

template <class T>
struct ShiftPixelsArgs {
  const int64_t* pixel_indices;  // [R]
  const T* shifts;               // [R,2] columns and rows
  int64_t num_pixels;
  int64_t width, height;        // of all images, if sizes is null
  const int64_t* sizes;         // [I,2] width and height of each
  const int64_t* first_pixels;  // [I+1] rising from 0 to the number of all pixels
  int64_t images;
  int64_t* out;  // [R]
};

// A shift that is no number leads to column or row 0. A pixel outside the images stays outside.
template <class T>
HOST_DEVICE void shift_pixel(const ShiftPixelsArgs<T>& a, int64_t i) {
  const int64_t pixel = a.pixel_indices[i];
  int64_t width = a.width, height = a.height, first = 0;
  if (a.sizes) {
    const int64_t image = run_of(a.first_pixels, a.images, pixel);
    width = min2(max2(a.sizes[2 * image], int64_t(1)), kLongestSide);
    height = min2(max2(a.sizes[2 * image + 1], int64_t(1)), kLongestSide);
    first = a.first_pixels[image];
  }
  a.out[i] = pixel;
  if (first < 0 || pixel < first) return;
  int64_t place[3];
  locate_pixel(pixel - first, width, height, place);
  const int64_t column = nearest_cell(double(place[1]) + std::rint(double(a.shifts[2 * i])), width);
  const int64_t row = nearest_cell(double(place[2]) + std::rint(double(a.shifts[2 * i + 1])), height);
  // As unsigned numbers, whose sum is defined however large a pixel is that no image has.
  a.out[i] = int64_t(uint64_t(pixel) + uint64_t((row - place[2]) * width + column - place[1]));
}

}  // namespace nerf
