// draw_pixels: one draw at a time. Draws rise, so threads beside each other search beside each other.
#pragma once

#include "../device.h"
#include "../math/draw_pixels.h"

namespace nerf {
namespace portable {

template <class T>
void draw_pixels(const Device& device, const DrawPixelsArgs<T>& a) {
  device.for_each("draw_pixels", a.num_drawn, [a] ON_DEVICE(int64_t i) { draw_pixel(a, i); });
}

}  // namespace portable

NERF_PORTABLE(draw_pixels, DrawPixelsArgs)

}  // namespace nerf
