// carve_points: one point at a time, through the views until one sees it as empty.
#pragma once

#include "../device.h"
#include "../math/carve_points.h"

namespace nerf {
namespace portable {

template <class T>
void carve_points(const Device& device, const CarvePointsArgs<T>& a) {
  device.for_each("carve_points", a.num_points, [a] ON_DEVICE(int64_t i) { carve_point(a, i); });
}

}  // namespace portable

NERF_PORTABLE(carve_points, CarvePointsArgs)

}  // namespace nerf
