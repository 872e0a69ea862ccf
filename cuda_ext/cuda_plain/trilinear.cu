// interpolate_trilinear on CUDA, plain: one thread per point and channel, and per point for the gradient of coords.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void trilinear(const TrilinearArgs<T>& a, Stream stream) {
  for_each(a.num_points * a.channels, "interpolate_trilinear", stream, [a] __device__(int64_t i) {
    const int64_t n = i / a.channels, c = i % a.channels;
    const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
    T sum = T(0);
    for (int k = 0; k < 8; ++k) sum += s.corner_weight(k) * a.grid[s.corner_row(k) * a.channels + c];
    a.out[i] = sum;
  });
}

template <class T>
void trilinear_backward(const TrilinearArgs<T>& a, Stream stream) {
  if (a.grad_coords)
    for_each(a.num_points, "interpolate_trilinear_backward", stream, [a] __device__(int64_t n) {
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
      coordinate_gradient(s, a.grid, a.grad_out + n * a.channels, a.channels, a.grad_coords + 3 * n);
    });
  if (a.grad_grid)
    for_each(a.num_points * a.channels, "interpolate_trilinear_backward", stream, [a] __device__(int64_t i) {
      const T grad = a.grad_out[i];
      if (grad == T(0)) return;
      const int64_t n = i / a.channels, c = i % a.channels;
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
      for (int k = 0; k < 8; ++k) atomicAdd(a.grad_grid + s.corner_row(k) * a.channels + c, s.corner_weight(k) * grad);
    });
}

NERF_INSTANTIATE(trilinear, TrilinearArgs)
NERF_INSTANTIATE(trilinear_backward, TrilinearArgs)

}  // namespace nerf::cuda_plain
