// undistort_points: one point at a time.
#pragma once

#include "../device.h"
#include "../math/undistort_points.h"

namespace nerf {
namespace portable {

template <class T>
void undistort_points(const Device& device, const UndistortPointsArgs<T>& a) {
  device.for_each("undistort_points", a.count, 256, [a] ON_DEVICE(int64_t n) { undistort_point(a, n); });
}

}  // namespace portable

NERF_PORTABLE(undistort_points, UndistortPointsArgs)

}  // namespace nerf
