// all_finite: one chunk at a time.
#pragma once

#include "../device.h"
#include "../math/all_finite.h"

namespace nerf {
namespace portable {

template <class T>
void all_finite(const Device& device, const AllFiniteArgs<T>& a) {
  device.for_each("all_finite", a.chunks, 8, [a] ON_DEVICE(int64_t c) {
    if (!is_finite(finite_chunk(a, c))) Device::clear(a.finite);
  });
}

}  // namespace portable

NERF_PORTABLE(all_finite, AllFiniteArgs)

}  // namespace nerf
