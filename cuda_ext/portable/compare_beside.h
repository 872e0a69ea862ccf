// compare_beside: one pixel at a time.
#pragma once

#include "../device.h"
#include "../math/compare_beside.h"

namespace nerf {
namespace portable {

template <class T>
void compare_beside(const Device& device, const CompareBesideArgs<T>& a) {
  device.for_each("compare_beside", a.num_pixels, 64, [a] ON_DEVICE(int64_t p) { compare_pixel_beside(a, p); });
}

template <class T>
void compare_beside_backward(const Device& device, const CompareBesideArgs<T>& a) {
  device.for_each("compare_beside_backward", a.num_pixels, 64,
                  [a] ON_DEVICE(int64_t p) { compare_beside_gradient(a, p); });
}

}  // namespace portable

NERF_PORTABLE(compare_beside, CompareBesideArgs)
NERF_PORTABLE(compare_beside_backward, CompareBesideArgs)

}  // namespace nerf
