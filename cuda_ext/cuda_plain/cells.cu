// interpolate_cells on CUDA, plain: one thread per point and feature, and per point for its gradient.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void cells(const CellsArgs<T>& a, Stream stream) {
  for_each(a.num_points * a.channels, "interpolate_cells", stream, [a] __device__(int64_t i) {
    const int64_t n = i / a.channels, c = i % a.channels;
    const CornerWeights<T> w = cell_weights(a.points + 3 * n);
    T sum = T(0);
    for (int k = 0; k < 8; ++k) sum += w.corner_weight(k) * a.feats[(8 * n + k) * a.channels + c];
    a.out[i] = sum;
  });
}

template <class T>
void cells_backward(const CellsArgs<T>& a, Stream stream) {
  if (a.grad_feats)
    for_each(a.num_points * a.channels, "interpolate_cells_backward", stream, [a] __device__(int64_t i) {
      const int64_t n = i / a.channels, c = i % a.channels;
      const CornerWeights<T> w = cell_weights(a.points + 3 * n);
      for (int k = 0; k < 8; ++k) a.grad_feats[(8 * n + k) * a.channels + c] = w.corner_weight(k) * a.grad_out[i];
    });
  if (a.grad_points)
    for_each(a.num_points, "interpolate_cells_backward", stream, [a] __device__(int64_t n) {
      T dots[8] = {};
      for (int k = 0; k < 8; ++k)
        for (int64_t c = 0; c < a.channels; ++c)
          dots[k] += a.feats[(8 * n + k) * a.channels + c] * a.grad_out[n * a.channels + c];
      const CornerWeights<T> w = cell_weights(a.points + 3 * n);
      for (int axis = 0; axis < 3; ++axis) a.grad_points[3 * n + axis] = point_gradient(w, dots, axis);
    });
}

NERF_INSTANTIATE(cells, CellsArgs)
NERF_INSTANTIATE(cells_backward, CellsArgs)

}  // namespace nerf::cuda_plain
