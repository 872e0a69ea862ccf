// Composited contracted distance to composited world distance, and its derivative.
//
// With the mean m = depth / max(opacity, kLeastOpacity) of a ray, and D(t) its distance at contracted distance t (march.h):
//
//   out = D(m) opacity
#pragma once

#include "march.h"

namespace nerf {

constexpr double kLeastOpacity = 1e-6;  // as MIN_OPACITY in nerf/images/metrics.py

template <class T>
struct WorldDepthArgs {
  const T *depth, *opacity;       // [R]
  const T *origins, *directions;  // [R,3] world
  const T *center, *half;         // [3] of the inner box, world
  T contraction;                  // thickness of the shell in halves of the box
  int64_t rays;
  T* out;                        // [R]  forward
  const T* grad_out;             // [R]  backward
  T *grad_depth, *grad_opacity;  // [R]  backward

  HOST_DEVICE T seen(int64_t r) const { return clamp(opacity[r], T(kLeastOpacity), T(INFINITY)); }

  // leave and limit of ray r.
  HOST_DEVICE void leaves(int64_t r, T& leave, T& limit) const {
    T origin[3], direction[3];
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      origin[axis] = (origins[3 * r + axis] - center[axis]) / half[axis];
      direction[axis] = directions[3 * r + axis] / half[axis];
    }
    leave_inner_box(origin, direction, contraction, leave, limit);
  }
};

template <class T>
HOST_DEVICE void find_world_depth(const WorldDepthArgs<T>& a, int64_t r) {
  T leave, limit;
  a.leaves(r, leave, limit);
  const T t = a.depth[r] / a.seen(r);
  a.out[r] = (t > leave ? leave + unsquash(t - leave, limit) : t) * a.opacity[r];
}

template <class T>
HOST_DEVICE void world_depth_gradient(const WorldDepthArgs<T>& a, int64_t r) {
  T leave, limit;
  a.leaves(r, leave, limit);
  const T opacity = a.seen(r), t = a.depth[r] / opacity;
  T distance = t, slope = T(1);
  if (t > leave) {
    // Where unsquash clamps, only its numerator changes.
    const T last = T(1) - T(1) / T(1 << 22), part = (t - leave) / limit, rest = T(1) - min2(part, last);
    distance = leave + (t - leave) / rest;
    slope = part < last ? T(1) / (rest * rest) : T(1) / rest;
  }
  a.grad_depth[r] = a.grad_out[r] * a.opacity[r] * slope / opacity;
  a.grad_opacity[r] = a.grad_out[r] * (distance - (a.opacity[r] < T(kLeastOpacity) ? T(0) : slope * t));
}

}  // namespace nerf
