// Trilinear interpolation within one cell whose eight corner values are given, and its gradients.
//
// Corner k = 4x + 2y + z. On each axis the point -1 is the low corner and 1 the high one; the value is linear in each
// coordinate, and the same formula goes on outside of the cell.
#pragma once

#include "host_device.h"

namespace nerf {

// The weights of the eight corners.
template <class T>
struct CornerWeights {
  T weight[3][2];  // on each axis: 1 - fraction, fraction

  // Chosen, not indexed: a GPU keeps no array in registers whose index it does not know.
  HOST_DEVICE T corner_weight(int k) const {
    return (k & 4 ? weight[0][1] : weight[0][0]) * (k & 2 ? weight[1][1] : weight[1][0]) *
           (k & 1 ? weight[2][1] : weight[2][0]);
  }

  // Derivative of corner_weight with respect to the fraction on one axis.
  HOST_DEVICE T fraction_slope(int k, int axis) const {
    T slope = k >> (2 - axis) & 1 ? T(1) : T(-1);
    NERF_UNROLL for (int other = 0; other < 3; ++other)
      if (other != axis) slope *= weight[other][k >> (2 - other) & 1];
    return slope;
  }
};

template <class T>
HOST_DEVICE CornerWeights<T> cell_weights(const T* point) {
  CornerWeights<T> w;
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    w.weight[axis][0] = T(0.5) - T(0.5) * point[axis];
    w.weight[axis][1] = T(0.5) + T(0.5) * point[axis];
  }
  return w;
}

// d loss / d point on one axis, from dots[k] = corner values k . d loss / d out. The fraction is half of the point.
template <class T>
HOST_DEVICE T point_gradient(const CornerWeights<T>& w, const T dots[8], int axis) {
  T sum = T(0);
  NERF_UNROLL for (int k = 0; k < 8; ++k) sum += w.fraction_slope(k, axis) * dots[k];
  return T(0.5) * sum;
}

template <class T>
struct CellsArgs {
  const T* feats;   // [N,8,F]
  const T* points;  // [N,3] in [-1,1]
  int64_t num_points, channels;
  T* out;             // [N,F]            forward
  const T* grad_out;  // [N,F]            backward
  T* grad_feats;      // [N,8,F] or null
  T* grad_points;     // [N,3] or null
};

}  // namespace nerf
