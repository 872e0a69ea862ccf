// From a point of the world to a pixel, through pinholes and lenses, with the derivative along.
#pragma once

#include "lens.h"

namespace nerf {

template <class T>
struct CameraSet {
  const T *c2w, *intrinsics;   // [I,3,4]: right, up and backward axis, center; [I,4]: fx, fy, cx, cy in pixels
  const int64_t* lens_models;  // [I], null: pinholes
  const T *lens_coefficients, *lens_reach;  // [I,6], [I]

  HOST_DEVICE bool sees_all(int64_t image) const { return lens_models && lens_models[image] == kPanorama; }

  // A vector of the world along the axes of an image's camera, x right, y down, z forward.
  HOST_DEVICE void turn(int64_t image, const T world[3], T in_camera[3]) const {
    const T* pose = c2w + 12 * image;
    NERF_UNROLL for (int column = 0; column < 3; ++column) {
      T sum = T(0);
      NERF_UNROLL for (int axis = 0; axis < 3; ++axis) sum += world[axis] * pose[4 * axis + column];
      in_camera[column] = column == 0 ? sum : -sum;
    }
  }

  // Pixel coordinates in an image of what lies there from its camera; behind a pinhole they mean nothing.
  HOST_DEVICE void project(int64_t image, const Dual<T> in_camera[3], Dual<T>& u, Dual<T>& v) const {
    const T* camera = intrinsics + 4 * image;
    if (lens_models) {
      const Lens<T> lens = {lens_models[image], lens_coefficients + kCoefficients * image, lens_reach[image]};
      lens.distort(in_camera, u, v);
    } else {
      const Dual<T> z = in_camera[2].value > T(0) ? in_camera[2] : Dual<T>(T(1));
      const T inverse = T(1) / z.value;
      u.value = in_camera[0].value * inverse, u.slope = (in_camera[0].slope - u.value * z.slope) * inverse;
      v.value = in_camera[1].value * inverse, v.slope = (in_camera[1].slope - v.value * z.slope) * inverse;
    }
    u = {camera[2] + camera[0] * u.value, camera[0] * u.slope};
    v = {camera[3] + camera[1] * v.value, camera[1] * v.slope};
  }
};

// Two unit directions across a unit direction, and across each other (Duff et al. 2017, "Building an Orthonormal Basis,
// Revisited").
template <class T>
HOST_DEVICE void directions_across(const T d[3], T first[3], T second[3]) {
  const T sign = d[2] < T(0) ? T(-1) : T(1), a = T(-1) / (sign + d[2]), b = d[0] * d[1] * a;
  first[0] = T(1) + sign * d[0] * d[0] * a, first[1] = sign * b, first[2] = -sign * d[0];
  second[0] = b, second[1] = sign + d[1] * d[1] * a, second[2] = -d[1];
}

}  // namespace nerf
