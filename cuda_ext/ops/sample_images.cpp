// sample_images: bytes to colors, for the pixels of one batch.
#include "../portable/sample_images.h"

#include "operation.h"

namespace nerf {

Tensor sample_images(const Tensor& images, const Tensor& pixel_indices) {
  check_argument("images", images, images, ScalarType::Byte, {kAny, kAny, kAny, kAny});
  check_argument("pixel_indices", pixel_indices, images, ScalarType::Long, {kAny});
  const Tensor bytes = dense(images), indices = dense(pixel_indices);
  check_channels("images", bytes.size(3));
  const int64_t num_pixels = product("images", {bytes.size(0), bytes.size(1), bytes.size(2)});
  check_indices("pixel_indices", indices, num_pixels);
  Tensor out = empty(bytes, {indices.size(0), bytes.size(3)}, ScalarType::Float);
  SampleImagesArgs<float> a = {};
  a.images = data<uint8_t>(bytes);
  a.num_pixels = num_pixels;
  a.channels = bytes.size(3);
  a.pixel_indices = data<int64_t>(indices);
  a.num_rays = indices.size(0);
  a.out = data<float>(out);
  NERF_CALL(bytes, sample_images, a);
  return out;
}

NERF_OPERATION(sample_images, "(Tensor images, Tensor pixel_indices) -> Tensor")

}  // namespace nerf
