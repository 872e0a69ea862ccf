// interpolate_trilinear on the CPU. The channel loops have a constant length where the channel count is a common one,
// so that the compiler keeps a whole row in vector registers.
#include <vector>

#include "parallel.h"

namespace nerf::cpu {
namespace {

constexpr int64_t kAnyChannels = 0;

template <class Body>
void with_channels(int64_t channels, const Body& body) {
  switch (channels) {
    case 1: return body(std::integral_constant<int64_t, 1>());
    case 4: return body(std::integral_constant<int64_t, 4>());
    case 12: return body(std::integral_constant<int64_t, 12>());
    case 28: return body(std::integral_constant<int64_t, 28>());
    default: return body(std::integral_constant<int64_t, kAnyChannels>());
  }
}

// The adjoint of one point in a cell at x, restricted to the corners whose x lies in [x_begin, x_end).
template <class T, int64_t kChannels>
void scatter(const TrilinearArgs<T>& a, int64_t n, int64_t x, int64_t x_begin, int64_t x_end) {
  const int64_t channels = kChannels ? kChannels : a.channels;
  const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
  const T* __restrict__ grad = a.grad_out + n * channels;
  for (int k = 0; k < 8; ++k) {
    const int64_t corner_x = x + (k & 4 && s.stride[0] ? 1 : 0);
    if (corner_x < x_begin || corner_x >= x_end) continue;
    const T weight = s.corner_weight(k);
    T* __restrict__ target = a.grad_grid + s.corner_row(k) * channels;
    for (int64_t c = 0; c < channels; ++c) target[c] += weight * grad[c];
  }
}

}  // namespace

template <class T>
void trilinear(const TrilinearArgs<T>& a, Stream) {
  with_channels(a.channels, [&](auto constant) {
    const int64_t channels = constant ? int64_t(constant) : a.channels;
    parallel_for(a.num_points, 512, [&](int64_t n) {
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
      T* __restrict__ out = a.out + n * channels;
      for (int64_t c = 0; c < channels; ++c) out[c] = T(0);
      for (int k = 0; k < 8; ++k) {
        const T weight = s.corner_weight(k);
        const T* __restrict__ values = a.grid + s.corner_row(k) * channels;
        for (int64_t c = 0; c < channels; ++c) out[c] += weight * values[c];
      }
    });
  });
}

// Each core owns a slab of the grid and adds what falls into it, in the order of the points: no atomics, and the same
// sum for any number of cores. A histogram over x cuts the slabs so that they hold equal work.
template <class T>
void trilinear_backward(const TrilinearArgs<T>& a, Stream) {
  if (a.grad_coords)
    parallel_for(a.num_points, 256, [&](int64_t n) {
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
      coordinate_gradient(s, a.grid, a.grad_out + n * a.channels, a.channels, a.grad_coords + 3 * n);
    });
  if (!a.grad_grid) return;
  const int64_t num_slabs = torch::stable::get_num_threads();
  std::vector<int64_t> points_at(a.vertices[0], 0), first_x(num_slabs + 1, a.vertices[0]);
  std::vector<int32_t> x_of(a.num_points);
  parallel_for(a.num_points, 2048, [&](int64_t n) {
    x_of[n] = int32_t(cell_of(clamp(a.coords[3 * n], T(0), T(a.vertices[0] - 1)), a.vertices[0]));
  });
  for (const int32_t x : x_of) ++points_at[x];
  first_x[0] = 0;
  for (int64_t x = 0, slab = 1, sum = 0; x < a.vertices[0] && slab < num_slabs; sum += points_at[x++])
    if (sum >= a.num_points * slab / num_slabs) first_x[slab++] = x;
  with_channels(a.channels, [&](auto constant) {
    parallel_for(num_slabs, 1, [&](int64_t slab) {
      for (int64_t n = 0; n < a.num_points; ++n)
        if (x_of[n] + 1 >= first_x[slab] && x_of[n] < first_x[slab + 1])
          scatter<T, decltype(constant)::value>(a, n, x_of[n], first_x[slab], first_x[slab + 1]);
    });
  });
}

NERF_INSTANTIATE(trilinear, TrilinearArgs)
NERF_INSTANTIATE(trilinear_backward, TrilinearArgs)

}  // namespace nerf::cpu
