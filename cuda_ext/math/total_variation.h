// Gradient of the total variation of a grid at one value, of all or of those at the vertices that are listed.
//
//   TV(grid) = sum over pairs of neighbouring vertices, over channels, of h(difference),
//   h(d) = d^2 / 2 for |d| <= 1, |d| - 1/2 beyond (Huber 1964): smooth near zero, one strong edge costs no more.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct TotalVariationArgs {
  const T* grid;  // [X,Y,Z,C]
  int64_t vertices[3], channels;
  T* grad;  // [X,Y,Z,C], added to
  T weight;
  bool touched_only;    // leave values alone whose gradient is zero
  const int64_t* rows;  // [num_rows] vertices to visit, each once; null: all
  int64_t num_rows;
};

// How many values are visited.
template <class T>
HOST_DEVICE int64_t variation_count(const TotalVariationArgs<T>& a) {
  return (a.rows ? a.num_rows : a.vertices[0] * a.vertices[1] * a.vertices[2]) * a.channels;
}

// Where the k-th of them lies in the grid; -1 for a vertex that does not exist.
template <class T>
HOST_DEVICE int64_t variation_place(const TotalVariationArgs<T>& a, int64_t k) {
  if (!a.rows) return k;
  const int64_t row = a.rows[k / a.channels];
  if (row < 0 || row >= a.vertices[0] * a.vertices[1] * a.vertices[2]) return -1;
  return row * a.channels + k % a.channels;
}

// h'(own - neighbour).
template <class T>
HOST_DEVICE T variation_slope(T own, T neighbour) {
  return clamp(own - neighbour, T(-1), T(1));
}

template <class T>
HOST_DEVICE void total_variation_gradient(const TotalVariationArgs<T>& a, int64_t k) {
  const int64_t i = variation_place(a, k);
  if (i < 0 || (a.touched_only && a.grad[i] == T(0))) return;
  int64_t stride = a.channels, position = i / a.channels;
  T sum = T(0);
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t x = position % a.vertices[axis];
    if (x > 0) sum += variation_slope(a.grid[i], a.grid[i - stride]);
    if (x + 1 < a.vertices[axis]) sum += variation_slope(a.grid[i], a.grid[i + stride]);
    position /= a.vertices[axis];
    stride *= a.vertices[axis];
  }
  a.grad[i] += a.weight * sum;
}

}  // namespace nerf
