// shift_pixels: one pixel at a time. Pixels rise, so threads beside each other search beside each other.
#pragma once

#include "../device.h"
#include "../math/shift_pixels.h"

namespace nerf {
namespace portable {

template <class T>
void shift_pixels(const Device& device, const ShiftPixelsArgs<T>& a) {
  device.for_each("shift_pixels", a.num_pixels, [a] ON_DEVICE(int64_t i) { shift_pixel(a, i); });
}

}  // namespace portable

NERF_PORTABLE(shift_pixels, ShiftPixelsArgs)

}  // namespace nerf
