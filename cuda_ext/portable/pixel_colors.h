// pixel_colors: one pixel at a time.
#pragma once

#include "../device.h"
#include "../math/pixel_colors.h"

namespace nerf {
namespace portable {

template <class T>
void pixel_colors(const Device& device, const PixelColorsArgs<T>& a) {
  device.for_each("pixel_colors", a.pixels, 256, [a] ON_DEVICE(int64_t p) { color_pixel(a, p); });
}

template <class T>
void pixel_colors_backward(const Device& device, const PixelColorsArgs<T>& a) {
  device.for_each("pixel_colors_backward", a.pixels, 256, [a] ON_DEVICE(int64_t p) { pixel_color_gradient(a, p); });
}

}  // namespace portable

NERF_PORTABLE(pixel_colors, PixelColorsArgs)
NERF_PORTABLE(pixel_colors_backward, PixelColorsArgs)

}  // namespace nerf
