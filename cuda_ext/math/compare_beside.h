// How unlike a patch around a pixel is to what a photo taken beside its own shows at the rendered depth.
//
// With the camera center o and unit direction d of the pixel's ray, its distance D = depth / opacity, and the projection P of
// the photo beside, a pixel of the patch, i columns to the right and j rows down, is compared (photo_patches.h) with what is at
//
//   P(o + D (d + i w_0 + j w_1))
//
// where the steps w of the direction, across the ray, lead one pixel to the right and one down. They follow from the derivative
// of the pixel's own projection: with two directions e across the ray and J = P_own' e, J w = (1, 0) and (0, 1). So lenses need
// no inverse.
#pragma once

#include "cameras.h"
#include "photo_patches.h"

namespace nerf {

// As nerf/ops/compare_beside.py has them.
constexpr double kOpaque = 0.5, kLeastCosine = 0.98480775301220806;  // of 10 degrees
constexpr uint64_t kSpread = 7919;

template <class T>
struct CompareBesideArgs {
  Photos photos;
  CameraSet<T> cameras;
  const int64_t* beside;          // [I,K], -1: none
  const int64_t* pixels;          // [P]
  const T *origins, *directions;  // [P,3] world
  const T *depth, *opacity;       // [P]
  int64_t views, num_pixels;      // K, P
  T* error;                       // [P]  forward
  const T* grad_error;            // [P]  backward
  T *grad_depth, *grad_opacity;   // [P]  backward
};

// A pixel's patch and what is there beside it, with the derivative by the pixel's distance.
template <class T>
struct BesidePatch {
  PatchPair<T> pair;
  PatchError<T> found;

  // False where nothing is said: see nerf/ops/compare_beside.py.
  HOST_DEVICE bool compare(const CompareBesideArgs<T>& a, int64_t p) {
    const int64_t pixel = a.pixels[p];
    if (!(a.opacity[p] > T(kOpaque)) || pixel < 0 || pixel >= a.photos.num_pixels || a.photos.num_images < 1)
      return false;
    const int64_t own = run_of(a.photos.first_pixels, a.photos.num_images, pixel);
    const uint64_t count = uint64_t(a.views), spread = uint64_t(pixel) * kSpread / 64;
    // A division of 64 bits takes a GPU longer than a patch's pixel.
    const int64_t other =
        a.beside[own * a.views + int64_t(count & (count - 1) ? spread % count : spread & (count - 1))];
    Photo own_photo, other_photo;
    if (!a.photos.find(own, own_photo) || !a.photos.find(other, other_photo)) return false;
    const T distance = a.depth[p] / a.opacity[p], *d = a.directions + 3 * p, *o = a.origins + 3 * p;
    if (!is_seen(a, other, o, d, distance)) return false;
    // From here on along the axes of the photo beside.
    const T* pose = a.cameras.c2w + 12 * other;
    T steps[2][3], between[3], start[3], ahead[3], aside[2][3];
    find_steps(a, own, d, steps);
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) between[axis] = o[axis] - pose[4 * axis + 3];
    a.cameras.turn(other, between, start);
    a.cameras.turn(other, d, ahead);
    NERF_UNROLL for (int i = 0; i < 2; ++i) a.cameras.turn(other, steps[i], aside[i]);
    const auto place_of = [&](T right, T down, Dual<T>& u, Dual<T>& v) {
      Dual<T> point[3];
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
        const T direction = ahead[axis] + right * aside[0][axis] + down * aside[1][axis];
        point[axis] = {start[axis] + distance * direction, direction};
      }
      a.cameras.project(other, point, u, v);
    };
    return pair.read(a.photos, pixel, own_photo, other_photo, place_of) && found.of(pair);
  }

 private:
  // Whether the photo shows the pixel's point, and from about the same direction.
  HOST_DEVICE static bool is_seen(const CompareBesideArgs<T>& a, int64_t other, const T* o, const T* d, T distance) {
    const T* pose = a.cameras.c2w + 12 * other;
    T square = T(0), cosine = T(0), ahead = T(0);
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      const T to_point = o[axis] - pose[4 * axis + 3] + distance * d[axis];
      square += to_point * to_point;
      cosine += to_point * d[axis];
      ahead -= to_point * pose[4 * axis + 2];
    }
    return cosine > T(kLeastCosine) * std::sqrt(square) && (ahead > T(0) || a.cameras.sees_all(other));
  }

  // The steps of the direction that lead one pixel to the right and one down.
  HOST_DEVICE static void find_steps(const CompareBesideArgs<T>& a, int64_t own, const T* d, T steps[2][3]) {
    T across[2][3], ahead[3], aside[3];
    directions_across(d, across[0], across[1]);
    a.cameras.turn(own, d, ahead);
    Dual<T> u[2], v[2];
    NERF_UNROLL for (int i = 0; i < 2; ++i) {
      a.cameras.turn(own, across[i], aside);
      Dual<T> near[3];
      NERF_UNROLL for (int axis = 0; axis < 3; ++axis) near[axis] = {ahead[axis], aside[axis]};
      a.cameras.project(own, near, u[i], v[i]);
    }
    const T determinant = u[0].slope * v[1].slope - u[1].slope * v[0].slope;
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      steps[0][axis] = (v[1].slope * across[0][axis] - v[0].slope * across[1][axis]) / determinant;
      steps[1][axis] = (u[0].slope * across[1][axis] - u[1].slope * across[0][axis]) / determinant;
    }
  }
};

template <class T>
HOST_DEVICE void compare_pixel_beside(const CompareBesideArgs<T>& a, int64_t p) {
  BesidePatch<T> patch;
  a.error[p] = patch.compare(a, p) ? patch.found.error : T(0);
}

template <class T>
HOST_DEVICE void compare_beside_gradient(const CompareBesideArgs<T>& a, int64_t p) {
  BesidePatch<T> patch;
  a.grad_depth[p] = a.grad_opacity[p] = T(0);
  if (a.grad_error[p] == T(0) || !patch.compare(a, p)) return;
  const T of_depth = a.grad_error[p] * patch.found.slope(patch.pair) / a.opacity[p];
  a.grad_depth[p] = of_depth;
  a.grad_opacity[p] = -of_depth * a.depth[p] / a.opacity[p];
}

}  // namespace nerf
