// interpolate_trilinear on the CPU. The channel loops have a constant length where the channel count is a common one, and
// the corners are written out, so that the compiler keeps a whole row in vector registers.
#include "../portable/trilinear.h"

#include <algorithm>
#include <vector>

#include "../math/channels.h"

namespace nerf::cpu {
namespace {

constexpr int64_t kAnyChannels = 0, kMostAtOnce = 32;
constexpr int64_t kAhead = 8;  // points between asking for the rows of one and adding to them
constexpr int64_t kCacheLine = 64;

// Density has one channel. What is stored in 16 bits nobody trains on a CPU.
template <class S, class Body>
void with_row(int64_t channels, const Body& body) {
  const auto any = [&] { body(std::integral_constant<int, kAnyChannels>()); };
  if constexpr (kIsOneOf<S, ShortValues, ShortSamples>) any();
  else with_channels<1>(FastChannels(), channels, body, any);
}

// One point: the weighted sum of its corners' rows.
template <class S, int64_t kChannels, class Rows>
void gather(const TrilinearArgs<S>& a, const Rows& rows, int64_t n) {
  using T = Wide<S>;
  const int64_t channels = kChannels ? kChannels : a.channels;
  const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
  int64_t at[8];
  corner_rows(s, rows, at);
  constexpr int64_t kAtOnce = kChannels ? kChannels : kMostAtOnce;
  for (int64_t first = 0; first < channels; first += kAtOnce) {
    const int64_t count = kChannels ? kChannels : min2(kAtOnce, channels - first);
    T sum[kAtOnce] = {};  // in registers; without it the sums would go through memory for every corner
    NERF_UNROLL for (int k = 0; k < 8; ++k) {
      const T weight = s.corner_weight(k);
      if (Rows::kSparse && at[k] < 0) continue;
      const Value<S>* __restrict__ values = a.grid + (at[k] * channels + first);
      for (int64_t c = 0; c < count; ++c) sum[c] += weight * widen(values[c]);
    }
    Interpolated<S>* __restrict__ out = a.out + (n * channels + first);
    for (int64_t c = 0; c < count; ++c) out[c] = narrow<Interpolated<S>>(sum[c]);
  }
}

// The adjoint of one point in a cell at x, restricted to the corners whose x lies in [x_begin, x_end).
template <class S, int64_t kChannels, class Rows>
void scatter(const TrilinearArgs<S>& a, const Rows& rows, int64_t n, int64_t x, int64_t x_begin, int64_t x_end) {
  using T = Wide<S>;
  const int64_t channels = kChannels ? kChannels : a.channels;
  const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
  const Interpolated<S>* __restrict__ grad_out = a.grad_out + n * channels;
  T row[kChannels + 1];
  for (int64_t c = 0; c < kChannels; ++c) row[c] = widen(grad_out[c]);
  const int64_t next = x + (s.stride[0] ? 1 : 0);
  const bool owns[] = {x >= x_begin && x < x_end, next >= x_begin && next < x_end};
  NERF_UNROLL for (int k = 0; k < 8; ++k) {
    if (!owns[k / 4]) continue;
    const T weight = s.corner_weight(k);
    const int64_t to = rows.row(s.corner_row(k));
    if (Rows::kSparse && to < 0) continue;
    Gradient<S>* __restrict__ target = a.grad_grid + to * channels;
    for (int64_t c = 0; c < channels; ++c) add_to(target[c], weight * (kChannels ? row[c] : widen(grad_out[c])));
  }
}

// Asks for the rows of gradients that a point will be added to: where they are the processor cannot guess, and to add is
// to wait for them. Two corners on the z axis are one piece of memory.
template <class S, class Rows>
void ask_for_rows(const TrilinearArgs<S>& a, const Rows& rows, int64_t n) {
  const auto s = make_stencil(a.coords + 3 * n, a.vertices, rows);
  const int64_t bytes = 2 * a.channels * int64_t(sizeof(Gradient<S>));
  for (int k = 0; k < 8; k += 2) {
    const int64_t row = rows.row(s.corner_row(k));
    if (Rows::kSparse && row < 0) continue;
    const char* first = reinterpret_cast<const char*>(a.grad_grid + row * a.channels);
    for (int64_t byte = 0; byte < bytes; byte += kCacheLine) __builtin_prefetch(first + byte, 1);
    __builtin_prefetch(first + bytes - 1, 1);
  }
}

template <class S, class Rows>
void gather_all(const TrilinearArgs<S>& a, const Rows& rows) {
  with_row<S>(a.channels, [&](auto constant) {
    parallel_for(a.num_points, 512, [&](int64_t n) { gather<S, decltype(constant)::value>(a, rows, n); });
  });
}

// Each core owns a slab of the grid and adds what falls into it, in the order of the points: no atomics, and the same
// sum for any number of cores. A histogram over x cuts the slabs so that they hold equal work.
template <class S, class Rows>
void scatter_all(const TrilinearArgs<S>& a, const Rows& rows) {
  using T = Wide<S>;
  if (a.grad_coords)
    parallel_for(a.num_points, 256, [&](int64_t n) {
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
      coordinate_gradient(s, rows, a.grid, a.grad_out + n * a.channels, a.channels, a.grad_coords + 3 * n);
    });
  if (!a.grad_grid || a.channels == 0) return;
  const int64_t num_slabs = num_threads();
  std::vector<int64_t> points_at(a.vertices[0], 0), first_x(num_slabs + 1, a.vertices[0]);
  std::vector<int64_t> x_of(a.num_points);
  parallel_for(a.num_points, 2048, [&](int64_t n) {
    x_of[n] = cell_of(clamp(a.coords[3 * n], T(0), T(a.vertices[0] - 1)), a.vertices[0]);
  });
  for (const int64_t x : x_of) ++points_at[x];
  first_x[0] = 0;
  for (int64_t x = 0, slab = 1, sum = 0; x < a.vertices[0] && slab < num_slabs; sum += points_at[x++])
    if (sum >= a.num_points * slab / num_slabs) first_x[slab++] = x;
  with_row<S>(a.channels, [&](auto constant) {
    parallel_for(num_slabs, 1, [&](int64_t slab) {
      const auto meets = [&](int64_t n) { return x_of[n] + 1 >= first_x[slab] && x_of[n] < first_x[slab + 1]; };
      for (int64_t n = 0; n < a.num_points; ++n) {
        if (n + kAhead < a.num_points && meets(n + kAhead)) ask_for_rows(a, rows, n + kAhead);
        if (meets(n)) scatter<S, decltype(constant)::value>(a, rows, n, x_of[n], first_x[slab], first_x[slab + 1]);
      }
    });
  });
}

}  // namespace

template <class S>
void trilinear(const TrilinearArgs<S>& a, Stream) {
  if (a.table.words) gather_all(a, a.table.sparse());
  else gather_all(a, DenseRows());
}

template <class S>
void trilinear_backward(const TrilinearArgs<S>& a, Stream) {
  if (a.table.words) scatter_all(a, a.table.sparse());
  else scatter_all(a, DenseRows());
}

NERF_INSTANTIATE(trilinear, TrilinearArgs)
NERF_INSTANTIATE(trilinear_backward, TrilinearArgs)
template void trilinear(const TrilinearArgs<ShortValues>&, Stream);
template void trilinear(const TrilinearArgs<ShortSamples>&, Stream);
template void trilinear_backward(const TrilinearArgs<ShortValues>&, Stream);
template void trilinear_backward(const TrilinearArgs<ShortSamples>&, Stream);

}  // namespace nerf::cpu
