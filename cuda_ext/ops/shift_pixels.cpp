// shift_pixels: neighbors of pixels in their images.
#include "../portable/shift_pixels.h"

#include "operation.h"

namespace nerf {
namespace {

void check_side(const std::string& found, int64_t side) {
  if (side < 1 || side > kLongestSide)
    reject(found + std::to_string(side) + ", expected 1 to " + std::to_string(kLongestSide));
}

// That images of these sizes begin at these pixels. Returns the number of all pixels.
int64_t check_images(const Tensor& sizes, const Tensor& first_pixels) {
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

}  // namespace

Tensor shift_pixels(const Tensor& pixel_indices, const Tensor& shifts, int64_t width, int64_t height,
                    const std::optional<Tensor>& sizes, const std::optional<Tensor>& first_pixels) {
  check_argument("pixel_indices", pixel_indices, pixel_indices, ScalarType::Long, {kAny});
  check_floating("shifts", shifts);
  const int64_t pixels = pixel_indices.size(0);
  check_argument("shifts", shifts, pixel_indices, shifts.scalar_type(), {pixels, 2});
  if (sizes && !first_pixels) reject("first_pixels is None, expected the first pixels of images with sizes");
  if (!sizes && first_pixels) reject("sizes is None, expected those of the images with first_pixels");
  const Tensor p = dense(pixel_indices), s = dense(shifts);
  std::optional<Tensor> z, f;
  int64_t all_pixels = INT64_MAX;  // of one size there may be any number of images
  if (sizes) {
    check_argument("sizes", *sizes, pixel_indices, ScalarType::Long, {kAny, 2});
    check_argument("first_pixels", *first_pixels, pixel_indices, ScalarType::Long, {sizes->size(0) + 1});
    if (pixels && sizes->size(0) < 1) reject("sizes has shape [0,2], expected an image that the pixels belong to");
    z = dense(*sizes), f = dense(*first_pixels);
    if (!p.is_cuda()) all_pixels = check_images(*z, *f);
  } else {
    check_side("width is ", width);
    check_side("height is ", height);
  }
  check_indices("pixel_indices", p, all_pixels);
  Tensor out = empty(p, {pixels}, ScalarType::Long);
  with_scalar(s, [&](auto scalar) {
    using T = decltype(scalar);
    ShiftPixelsArgs<T> a = {};
    a.pixel_indices = data<int64_t>(p);
    a.shifts = data<T>(s);
    a.num_pixels = pixels;
    a.width = width;
    a.height = height;
    if (z) {
      a.sizes = data<int64_t>(*z);
      a.first_pixels = data<int64_t>(*f);
      a.images = z->size(0);
    }
    a.out = data<int64_t>(out);
    NERF_CALL(p, shift_pixels, a);
  });
  return out;
}

NERF_OPERATION(shift_pixels,
               "(Tensor pixel_indices, Tensor shifts, int width, int height, Tensor? sizes=None, Tensor? "
               "first_pixels=None) -> Tensor")

}  // namespace nerf
