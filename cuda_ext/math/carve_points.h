// Points that a view sees as empty, and with them those outside of the visual hull (Laurentini 1994): the image around such
// a point shows nothing of the scene.
//
//   z = -(p - c) . backward,   u = cx + fx (p - c) . right / z,   v = cy - fy (p - c) . up / z
//
// How many pixels of a window show something is a difference of four sums (summed-area tables, Crow 1984).
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct CarvePointsArgs {
  const T* points;  // [N,3]
  int64_t num_points;
  const T* c2w;           // [V,3,4]
  const T* intrinsics;    // [V,4]: fx, fy, cx, cy
  const int32_t* counts;  // [V,height+1,width+1]: pixels above and to the left that show something
  const int64_t* reach;   // [V] pixels from a point's own one to the edges of its window
  int64_t views, height, width;
  bool* out;  // [N]
};

// A point behind the camera, or beside its image, is not seen.
template <class T>
HOST_DEVICE bool seen_as_empty(const CarvePointsArgs<T>& a, int64_t view, const T* p) {
  const T *m = a.c2w + 12 * view, *k = a.intrinsics + 4 * view;
  const T x = p[0] - m[3], y = p[1] - m[7], w = p[2] - m[11];
  const T z = -(x * m[2] + y * m[6] + w * m[10]);
  if (!(z > T(0))) return false;
  const T inverse = T(1) / z;
  const T u = k[2] + k[0] * (x * m[0] + y * m[4] + w * m[8]) * inverse;
  const T v = k[3] - k[1] * (x * m[1] + y * m[5] + w * m[9]) * inverse;
  if (!(u >= T(0) && u < T(a.width) && v >= T(0) && v < T(a.height))) return false;
  const int64_t column = int64_t(u), row = int64_t(v), reach = clamp(a.reach[view], int64_t(0), a.width + a.height);
  const int64_t left = max2(column - reach, int64_t(0)), right = min2(column + reach + 1, a.width);
  const int64_t upper = max2(row - reach, int64_t(0)), lower = min2(row + reach + 1, a.height);
  const int64_t line = a.width + 1;
  const int32_t* counts = a.counts + view * (a.height + 1) * line;
  // In 64 bits: on a GPU nobody has looked whether they are counts.
  return int64_t(counts[lower * line + right]) - counts[upper * line + right] <=
         int64_t(counts[lower * line + left]) - counts[upper * line + left];
}

template <class T>
HOST_DEVICE void carve_point(const CarvePointsArgs<T>& a, int64_t i) {
  bool kept = true;
  for (int64_t view = 0; kept && view < a.views; ++view) kept = !seen_as_empty(a, view, a.points + 3 * i);
  a.out[i] = kept;
}

}  // namespace nerf
