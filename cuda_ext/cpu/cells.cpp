// interpolate_cells on the CPU: one point at a time, with loops over the features that fill vector registers.
#include "../portable/cells.h"

namespace nerf::cpu {
namespace {

constexpr int kLanes = 16;  // independent sums of a dot product, so that the compiler may use vectors

template <class T>
T dot(const T* __restrict__ a, const T* __restrict__ b, int64_t count) {
  T sums[kLanes] = {}, sum = T(0);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[c + lane] * b[c + lane];
  for (; c < count; ++c) sum += a[c] * b[c];
  for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  return sum;
}

}  // namespace

template <class T>
void cells(const CellsArgs<T>& a, Stream) {
  parallel_for(a.num_points, 64, [&](int64_t n) {
    const CornerWeights<T> w = cell_weights(a.points + 3 * n);
    const int64_t channels = a.channels;
    T* __restrict__ out = a.out + n * channels;
    for (int k = 0; k < 8; ++k) {
      const T weight = w.corner_weight(k);
      const T* __restrict__ values = a.feats + (8 * n + k) * channels;
      if (k == 0)
        for (int64_t c = 0; c < channels; ++c) out[c] = weight * values[c];
      else
        for (int64_t c = 0; c < channels; ++c) out[c] += weight * values[c];
    }
  });
}

template <class T>
void cells_backward(const CellsArgs<T>& a, Stream) {
  parallel_for(a.num_points, 64, [&](int64_t n) {
    const CornerWeights<T> w = cell_weights(a.points + 3 * n);
    const int64_t channels = a.channels;
    const T* __restrict__ grad = a.grad_out + n * channels;
    T dots[8];
    for (int k = 0; k < 8; ++k) {
      const T weight = w.corner_weight(k);
      const int64_t corner = (8 * n + k) * channels;
      if (a.grad_feats) {
        T* __restrict__ target = a.grad_feats + corner;
        for (int64_t c = 0; c < channels; ++c) target[c] = weight * grad[c];
      }
      if (a.grad_points) dots[k] = dot(a.feats + corner, grad, channels);
    }
    if (a.grad_points)
      for (int axis = 0; axis < 3; ++axis) a.grad_points[3 * n + axis] = point_gradient(w, dots, axis);
  });
}

NERF_INSTANTIATE(cells, CellsArgs)
NERF_INSTANTIATE(cells_backward, CellsArgs)

}  // namespace nerf::cpu
