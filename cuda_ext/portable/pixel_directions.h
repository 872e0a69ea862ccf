// pixel_directions: one pixel at a time.
#pragma once

#include "../device.h"
#include "../math/pixel_directions.h"

namespace nerf {
namespace portable {

template <class T>
void pixel_directions(const Device& device, const PixelDirectionsArgs<T>& a) {
  device.for_each("pixel_directions", a.pixels, [a] ON_DEVICE(int64_t p) { write_pixel_direction(a, p); });
}

}  // namespace portable

NERF_PORTABLE(pixel_directions, PixelDirectionsArgs)

}  // namespace nerf
