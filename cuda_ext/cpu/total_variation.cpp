// total_variation_grad on the CPU: a vertex at a time, so that places are counted once and the compiler makes vectors of
// its channels.
#include "parallel.h"

namespace nerf::cpu {
namespace {

// As total_variation_gradient, in its order, for all channels of a vertex.
template <class T>
void add_slopes(const TotalVariationArgs<T>& a, int64_t vertex) {
  const int64_t size = a.channels, z = vertex % a.vertices[2], y = vertex / a.vertices[2] % a.vertices[1],
                x = vertex / (a.vertices[2] * a.vertices[1]), row = a.vertices[2] * size, plane = a.vertices[1] * row;
  const T* own = a.grid + vertex * size;
  // Where there is no neighbour the vertex itself is read: no difference.
  const T *before_z = z > 0 ? own - size : own, *after_z = z + 1 < a.vertices[2] ? own + size : own;
  const T *before_y = y > 0 ? own - row : own, *after_y = y + 1 < a.vertices[1] ? own + row : own;
  const T *before_x = x > 0 ? own - plane : own, *after_x = x + 1 < a.vertices[0] ? own + plane : own;
  const bool touched_only = a.touched_only;  // local, or the compiler takes grad for its alias
  const T weight = a.weight;
  T* __restrict__ grad = a.grad + vertex * size;
  for (int64_t c = 0; c < size; ++c) {
    const T v = own[c];
    const T sum = variation_slope(v, before_z[c]) + variation_slope(v, after_z[c]) + variation_slope(v, before_y[c]) +
                  variation_slope(v, after_y[c]) + variation_slope(v, before_x[c]) + variation_slope(v, after_x[c]);
    grad[c] += touched_only && grad[c] == T(0) ? T(0) : weight * sum;
  }
}

}  // namespace

template <class T>
void total_variation(const TotalVariationArgs<T>& a, Stream) {
  const int64_t vertices = a.vertices[0] * a.vertices[1] * a.vertices[2];
  if (vertices == 1) return;  // no neighbours
  parallel_for(a.rows ? a.num_rows : vertices, 512, [&](int64_t n) { add_slopes(a, a.rows ? a.rows[n] : n); });
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)

}  // namespace nerf::cpu
