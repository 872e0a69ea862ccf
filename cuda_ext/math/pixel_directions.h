// The directions of pixels from those of their rays, S beside each other: out[p] = (d[p S] + d[p S + S / 2]) made unit.
//
// The first ray of a pixel and the one in the middle of its list lie opposite each other about its center.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct PixelDirectionsArgs {
  const T* directions;  // [P S,3] unit
  int64_t pixels, rays_per_pixel;
  T* out;  // [P,3]
};

template <class T>
HOST_DEVICE void write_pixel_direction(const PixelDirectionsArgs<T>& a, int64_t p) {
  const T *first = a.directions + 3 * p * a.rays_per_pixel, *opposite = first + 3 * (a.rays_per_pixel / 2);
  T sum[3], square = T(0);
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    sum[axis] = first[axis] + opposite[axis];
    square += sum[axis] * sum[axis];
  }
  const T length = max2(std::sqrt(square), T(1e-12));
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) a.out[3 * p + axis] = sum[axis] / length;
}

}  // namespace nerf
