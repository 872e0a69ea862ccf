// From points of pictures to directions before their lenses (lens.h).
#pragma once

#include "lens.h"

namespace nerf {

template <class T>
struct UndistortPointsArgs {
  const T* points;                      // [N,2] focal lengths from the principal point, right and down
  const int64_t* image;                 // [N] whose lens
  const int64_t* models;                // [I]
  const T *coefficients, *reach, *rim;  // [I,6], [I], [I]
  int64_t count, images, iterations;
  T* directions;  // [N,3] of any length
};

// A point of an image that is none has a direction that is no number, as rays of such pixels have.
template <class T>
HOST_DEVICE void undistort_point(const UndistortPointsArgs<T>& a, int64_t n) {
  T* direction = a.directions + 3 * n;
  const int64_t i = a.image[n];
  if (i < 0 || i >= a.images) {
    direction[0] = direction[1] = direction[2] = T(NAN);
    return;
  }
  const Lens<T> lens = {a.models[i], a.coefficients + kCoefficients * i, a.reach[i]};
  lens.undistort(a.points[2 * n], a.points[2 * n + 1], a.rim[i], a.iterations, direction);
}

}  // namespace nerf
