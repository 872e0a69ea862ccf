// interpolate_cells: one number of a point at a time, and one point for its gradient.
#pragma once

#include "../device.h"
#include "../math/cells.h"

namespace nerf {
namespace portable {

template <class T>
void cells(const Device& device, const CellsArgs<T>& a) {
  device.for_each("interpolate_cells", a.num_points * a.channels, [a] ON_DEVICE(int64_t i) {
    const int64_t n = i / a.channels, c = i % a.channels;
    const CornerWeights<T> w = cell_weights(a.points + 3 * n);
    T sum = T(0);
    for (int k = 0; k < 8; ++k) sum += w.corner_weight(k) * a.feats[(8 * n + k) * a.channels + c];
    a.out[i] = sum;
  });
}

template <class T>
void cells_backward(const Device& device, const CellsArgs<T>& a) {
  if (a.grad_feats)
    device.for_each("interpolate_cells_backward", a.num_points * a.channels, [a] ON_DEVICE(int64_t i) {
      const int64_t n = i / a.channels, c = i % a.channels;
      const CornerWeights<T> w = cell_weights(a.points + 3 * n);
      for (int k = 0; k < 8; ++k) a.grad_feats[(8 * n + k) * a.channels + c] = w.corner_weight(k) * a.grad_out[i];
    });
  if (a.grad_points)
    device.for_each("interpolate_cells_backward", a.num_points, [a] ON_DEVICE(int64_t n) {
      T dots[8] = {};
      for (int k = 0; k < 8; ++k)
        for (int64_t c = 0; c < a.channels; ++c)
          dots[k] += a.feats[(8 * n + k) * a.channels + c] * a.grad_out[n * a.channels + c];
      const CornerWeights<T> w = cell_weights(a.points + 3 * n);
      for (int axis = 0; axis < 3; ++axis) a.grad_points[3 * n + axis] = point_gradient(w, dots, axis);
    });
}

}  // namespace portable

NERF_PORTABLE(cells, CellsArgs)
NERF_PORTABLE(cells_backward, CellsArgs)

}  // namespace nerf
