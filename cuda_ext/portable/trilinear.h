// interpolate_trilinear: one channel of a point at a time, and one point for the gradient of coords.
#pragma once

#include "../device.h"
#include "../math/trilinear.h"

namespace nerf {
namespace portable {

template <class S, class Rows>
void trilinear_in(const Device& device, const TrilinearArgs<S>& a, const Rows& rows) {
  using T = Wide<S>;
  device.for_each("interpolate_trilinear", a.num_points * a.channels, [a, rows] ON_DEVICE(int64_t i) {
    const int64_t n = i / a.channels, c = i % a.channels;
    const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
    int64_t row[8];
    corner_rows(s, rows, row);
    T sum = T(0);
    NERF_UNROLL for (int k = 0; k < 8; ++k)
      if (!Rows::kSparse || row[k] >= 0) sum += s.corner_weight(k) * widen(a.grid[row[k] * a.channels + c]);
    a.out[i] = narrow<Interpolated<S>>(sum);
  });
}

template <class S>
void trilinear(const Device& device, const TrilinearArgs<S>& a) {
  if (a.table.words) trilinear_in(device, a, a.table.sparse());
  else trilinear_in(device, a, DenseRows());
}

template <class S, class Rows>
void trilinear_backward_in(const Device& device, const TrilinearArgs<S>& a, const Rows& rows) {
  using T = Wide<S>;
  if (a.grad_coords)
    device.for_each("interpolate_trilinear_backward", a.num_points, [a, rows] ON_DEVICE(int64_t n) {
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
      coordinate_gradient(s, rows, a.grid, a.grad_out + n * a.channels, a.channels, a.grad_coords + 3 * n);
    });
  if (a.grad_grid)
    device.for_each("interpolate_trilinear_backward", a.num_points * a.channels, [a, rows] ON_DEVICE(int64_t i) {
      const T grad = widen(a.grad_out[i]);
      if (grad == T(0)) return;
      const int64_t n = i / a.channels, c = i % a.channels;
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
      for (int k = 0; k < 8; ++k) {
        const int64_t row = rows.row(s.corner_row(k));
        if (!Rows::kSparse || row >= 0)
          Device::add(a.grad_grid + row * a.channels + c, narrow<Gradient<S>>(s.corner_weight(k) * grad));
      }
    });
}

template <class S>
void trilinear_backward(const Device& device, const TrilinearArgs<S>& a) {
  if (a.table.words) trilinear_backward_in(device, a, a.table.sparse());
  else trilinear_backward_in(device, a, DenseRows());
}

}  // namespace portable

NERF_PORTABLE(trilinear, TrilinearArgs)
NERF_BODY_FOR(trilinear, TrilinearArgs, ShortValues)
NERF_BODY_FOR(trilinear, TrilinearArgs, ShortSamples)
NERF_PORTABLE(trilinear_backward, TrilinearArgs)
NERF_BODY_FOR(trilinear_backward, TrilinearArgs, ShortValues)
NERF_BODY_FOR(trilinear_backward, TrilinearArgs, ShortSamples)

}  // namespace nerf
