// interpolate_trilinear on the CPU. The channel loops have a constant length where the channel count is a common one, and
// the corners are written out, so that the compiler keeps a whole row in vector registers.
#include "../portable/trilinear.h"

#include <algorithm>
#include <vector>

#include "../math/channels.h"

namespace nerf::cpu {
namespace {

constexpr int64_t kAnyChannels = 0;
constexpr int64_t kAhead = 8;    // points between asking for the rows of one and using them
constexpr int64_t kBlock = 256;  // points whose places a slab looks up before it adds them
constexpr int64_t kCacheLine = 64;

// Density has one channel.
template <class Body>
void with_row(int64_t channels, const Body& body) {
  with_channels<1>(FastChannels(), channels, body, [&] { body(std::integral_constant<int, kAnyChannels>()); });
}

// Asks for the rows of a point's corners, of the values or of their gradients: where they are the processor cannot guess,
// and to use them is to wait for them. Two corners on the z axis are one piece of memory.
template <bool kToWrite, class T, class Rows>
void ask_for_rows(const T* grid, int64_t channels, const Stencil<T>& s, const Rows& rows) {
  const int64_t bytes = 2 * channels * int64_t(sizeof(T));
  for (int k = 0; k < 8; k += 2) {
    const int64_t row = rows.row(s.corner_row(k));
    if (Rows::kSparse && row < 0) continue;
    const char* first = reinterpret_cast<const char*>(grid + row * channels);
    for (int64_t byte = 0; byte < bytes; byte += kCacheLine) __builtin_prefetch(first + byte, kToWrite);
    __builtin_prefetch(first + bytes - 1, kToWrite);
  }
}

// One point: the weighted sum of its corners' rows.
template <class T, int64_t kChannels, class Rows>
void gather(const TrilinearArgs<T>& a, const Rows& rows, int64_t n) {
  const int64_t channels = kChannels ? kChannels : a.channels;
  if (kChannels != 1 && n + kAhead < a.num_points)
    ask_for_rows<false>(a.grid, channels, make_stencil(a.coords + 3 * (n + kAhead), a.vertices, rows), rows);
  const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
  int64_t at[8];
  corner_rows(s, rows, at);
  T row[kChannels + 1];  // in registers; without it the sums would go through memory for every corner
  T* __restrict__ sum = kChannels ? row : a.out + n * channels;
  std::fill_n(sum, channels, T(0));
  NERF_UNROLL for (int k = 0; k < 8; ++k) {
    const T weight = s.corner_weight(k);
    if (Rows::kSparse && at[k] < 0) continue;
    const T* __restrict__ values = a.grid + at[k] * channels;
    for (int64_t c = 0; c < channels; ++c) sum[c] += weight * values[c];
  }
  if (kChannels) std::copy_n(row, channels, a.out + n * channels);
}

// A point of which some corners lie in a slab.
template <class T>
struct PointOfSlab {
  int64_t n, x;  // its number, and that of its cell on the x axis
  Stencil<T> stencil;
};

template <class T, int64_t kChannels>
void add_row(T* __restrict__ target, const T* __restrict__ grad, T weight, int64_t channels) {
  for (int64_t c = 0; c < (kChannels ? kChannels : channels); ++c) target[c] += weight * grad[c];
}

// The adjoint of one point, restricted to the corners whose x lies in [x_begin, x_end). Where two corners on the z axis are
// one piece of memory, it is added to as one.
template <class T, int64_t kChannels, class Rows>
void scatter(const TrilinearArgs<T>& a, const Rows& rows, const PointOfSlab<T>& point, int64_t x_begin, int64_t x_end) {
  const int64_t channels = kChannels ? kChannels : a.channels, x = point.x;
  const Stencil<T>& s = point.stencil;
  T row[kChannels + 1], pair[2 * kChannels + 1];
  if (kChannels) std::copy_n(a.grad_out + point.n * channels, channels, row);
  const T* __restrict__ grad = kChannels ? row : a.grad_out + point.n * channels;
  const int64_t next = x + (s.stride[0] ? 1 : 0);
  const bool owns[] = {x >= x_begin && x < x_end, next >= x_begin && next < x_end};
  int64_t at[8];
  corner_rows(s, rows, at);
  NERF_UNROLL for (int k = 0; k < 8; k += 2) {
    if (!owns[k / 4]) continue;
    const T low = s.corner_weight(k), high = s.corner_weight(k + 1);
    if (kChannels && at[k] >= 0 && at[k + 1] == at[k] + 1) {
      for (int64_t c = 0; c < kChannels; ++c) pair[c] = low * row[c], pair[kChannels + c] = high * row[c];
      T* __restrict__ target = a.grad_grid + at[k] * kChannels;
      for (int64_t c = 0; c < 2 * kChannels; ++c) target[c] += pair[c];
      continue;
    }
    if (at[k] >= 0) add_row<T, kChannels>(a.grad_grid + at[k] * channels, grad, low, channels);
    if (at[k + 1] >= 0) add_row<T, kChannels>(a.grad_grid + at[k + 1] * channels, grad, high, channels);
  }
}

template <class T, class Rows>
void gather_all(const TrilinearArgs<T>& a, const Rows& rows) {
  with_row(a.channels, [&](auto constant) {
    parallel_for(a.num_points, 512, [&](int64_t n) { gather<T, decltype(constant)::value>(a, rows, n); });
  });
}

// Adds what falls into the slab [x_begin, x_end), in the order of the points. x_of [N]: their cells on the x axis.
template <class T, int64_t kChannels, class Rows>
void scatter_slab(const TrilinearArgs<T>& a, const Rows& rows, const int64_t* x_of, int64_t x_begin, int64_t x_end) {
  PointOfSlab<T> points[kBlock];
  for (int64_t first = 0; first < a.num_points; first += kBlock) {
    int64_t count = 0;
    for (int64_t n = first; n < min2(first + kBlock, a.num_points); ++n)
      if (x_of[n] + 1 >= x_begin && x_of[n] < x_end)
        points[count++] = {n, x_of[n], make_stencil(a.coords + 3 * n, a.vertices, rows)};
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) ask_for_rows<true>(a.grad_grid, a.channels, points[i + kAhead].stencil, rows);
      scatter<T, kChannels>(a, rows, points[i], x_begin, x_end);
    }
  }
}

// Each core owns a slab of the grid: no atomics, and the same sum for any number of cores. A histogram over x cuts the slabs
// so that they hold equal work.
template <class T, class Rows>
void scatter_all(const TrilinearArgs<T>& a, const Rows& rows) {
  if (a.grad_coords)
    parallel_for(a.num_points, 256, [&](int64_t n) {
      const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
      coordinate_gradient(s, rows, a.grid, a.grad_out + n * a.channels, a.channels, a.grad_coords + 3 * n);
    });
  if (!a.grad_grid || a.channels == 0) return;
  const int64_t num_slabs = torch::stable::get_num_threads();
  std::vector<int64_t> points_at(a.vertices[0], 0), first_x(num_slabs + 1, a.vertices[0]);
  std::vector<int64_t> x_of(a.num_points);
  parallel_for(a.num_points, 2048, [&](int64_t n) {
    x_of[n] = cell_of(clamp(a.coords[3 * n], T(0), T(a.vertices[0] - 1)), a.vertices[0]);
  });
  for (const int64_t x : x_of) ++points_at[x];
  first_x[0] = 0;
  for (int64_t x = 0, slab = 1, sum = 0; x < a.vertices[0] && slab < num_slabs; sum += points_at[x++])
    if (sum >= a.num_points * slab / num_slabs) first_x[slab++] = x;
  with_row(a.channels, [&](auto constant) {
    parallel_for(num_slabs, 1, [&](int64_t slab) {
      scatter_slab<T, decltype(constant)::value>(a, rows, x_of.data(), first_x[slab], first_x[slab + 1]);
    });
  });
}

}  // namespace

template <class T>
void trilinear(const TrilinearArgs<T>& a, Stream) {
  if (a.table.words) gather_all(a, a.table.sparse());
  else gather_all(a, DenseRows());
}

template <class T>
void trilinear_backward(const TrilinearArgs<T>& a, Stream) {
  if (a.table.words) scatter_all(a, a.table.sparse());
  else scatter_all(a, DenseRows());
}

NERF_INSTANTIATE(trilinear, TrilinearArgs)
NERF_INSTANTIATE(trilinear_backward, TrilinearArgs)

}  // namespace nerf::cpu
