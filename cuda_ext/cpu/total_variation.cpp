// total_variation_grad on the CPU: inside the grid a vertex at a time, so that places are counted once and the compiler
// makes vectors of its channels; at the border, where neighbors are missing, value by value.
#include "../portable/total_variation.h"

namespace nerf::cpu {
namespace {

// As total_variation_gradient, in its order, for all channels of a vertex that has all six neighbors.
template <class S>
void add_slopes_inside(const TotalVariationArgs<S>& a, int64_t vertex) {
  using T = Wide<S>;
  const int64_t size = a.channels, row = a.vertices[2] * size, plane = a.vertices[1] * row;
  const bool touched_only = a.touched_only;  // local, or the compiler takes grad for its alias
  const T weight = a.weight;
  const Value<S>* own = a.grid + vertex * size;
  Gradient<S>* __restrict__ grad = a.grad + vertex * size;
  for (int64_t c = 0; c < size; ++c) {
    const T v = widen(own[c]);
    const auto slope = [&](int64_t other) { return variation_slope(v, T(widen(own[other]))); };
    const T sum = slope(c - size) + slope(c + size) + slope(c - row) + slope(c + row) + slope(c - plane) +
                  slope(c + plane);
    add_to(grad[c], touched_only && widen(grad[c]) == T(0) ? T(0) : weight * sum);
  }
}

}  // namespace

template <class S>
void total_variation(const TotalVariationArgs<S>& a, Stream) {
  if (a.table.words)
    return parallel_for(a.num_rows, 512, [&](int64_t n) { sparse_total_variation_gradient(a, n, 0, a.channels); });
  const int64_t size_x = a.vertices[0], size_y = a.vertices[1], size_z = a.vertices[2];
  const auto inside = [](int64_t i, int64_t size) { return i > 0 && i + 1 < size; };
  parallel_for(a.rows ? a.num_rows : size_x * size_y * size_z, 512, [&](int64_t n) {
    const int64_t vertex = a.rows ? a.rows[n] : n, z = vertex % size_z, line = vertex / size_z;
    if (inside(z, size_z) && inside(line % size_y, size_y) && inside(line / size_y, size_x))
      return add_slopes_inside(a, vertex);
    for (int64_t c = 0; c < a.channels; ++c) total_variation_gradient(a, n * a.channels + c);
  });
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)
template void total_variation(const TotalVariationArgs<ShortValues>&, Stream);

}  // namespace nerf::cpu
