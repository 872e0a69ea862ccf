// interpolate_trilinear: one channel of a point at a time, and one point for the gradient of coords.
#pragma once

#include "../device.h"
#include "../math/trilinear.h"

namespace nerf {
namespace portable {

template <class T>
void trilinear(const Device& device, const TrilinearArgs<T>& a) {
  device.for_each("interpolate_trilinear", a.num_points * a.channels, [a] ON_DEVICE(int64_t i) {
    const int64_t n = i / a.channels, c = i % a.channels;
    const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
    T sum = T(0);
    for (int k = 0; k < 8; ++k) sum += s.corner_weight(k) * a.grid[s.corner_row(k) * a.channels + c];
    a.out[i] = sum;
  });
}

template <class T>
void trilinear_backward(const Device& device, const TrilinearArgs<T>& a) {
  if (a.grad_coords)
    device.for_each("interpolate_trilinear_backward", a.num_points, [a] ON_DEVICE(int64_t n) {
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
      coordinate_gradient(s, a.grid, a.grad_out + n * a.channels, a.channels, a.grad_coords + 3 * n);
    });
  if (a.grad_grid)
    device.for_each("interpolate_trilinear_backward", a.num_points * a.channels, [a] ON_DEVICE(int64_t i) {
      const T grad = a.grad_out[i];
      if (grad == T(0)) return;
      const int64_t n = i / a.channels, c = i % a.channels;
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
      for (int k = 0; k < 8; ++k)
        Device::add(a.grad_grid + s.corner_row(k) * a.channels + c, s.corner_weight(k) * grad);
    });
}

}  // namespace portable

NERF_PORTABLE(trilinear, TrilinearArgs)
NERF_PORTABLE(trilinear_backward, TrilinearArgs)

}  // namespace nerf
