// shift_pixels: neighbors of pixels in their images.
#include "../portable/shift_pixels.h"

#include "image_sizes.h"
#include "operation.h"

namespace nerf {

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
