// Gradient of the total variation of a grid at one value, of all or of those at the vertices that are listed.
//
//   TV(grid) = sum over pairs of neighboring vertices, over channels, of h(difference),
//   h(d) = d^2 / 2 for |d| <= 1, |d| - 1/2 beyond (Huber 1964): smooth near zero, one strong edge costs no more.
//
// In a sparse grid (rows.h) the pairs are those of which both have a row.
#pragma once

#include "place.h"
#include "rows.h"
#include "stored.h"

namespace nerf {

template <class S>
struct TotalVariationArgs {
  using T = Wide<S>;
  const Value<S>* grid;  // [X,Y,Z,C], or [L,C] if it is sparse
  RowTable table;        // if it is sparse, rows must be given
  int64_t vertices[3], channels;
  Gradient<S>* grad;  // like grid, added to
  T weight;
  bool touched_only;    // leave values alone whose gradient is zero
  const int64_t* rows;  // [num_rows] vertices to visit, each once; null: all
  int64_t num_rows;
};

// How many values are visited.
template <class T>
HOST_DEVICE int64_t variation_count(const TotalVariationArgs<T>& a) {
  return (a.rows ? a.num_rows : a.vertices[0] * a.vertices[1] * a.vertices[2]) * a.channels;
}

// Where the k-th of them lies in the grid; -1 for a vertex that does not exist.
template <class T>
HOST_DEVICE int64_t variation_place(const TotalVariationArgs<T>& a, int64_t k) {
  if (!a.rows) return k;
  const int64_t row = a.rows[k / a.channels];
  if (row < 0 || row >= a.vertices[0] * a.vertices[1] * a.vertices[2]) return -1;
  return row * a.channels + k % a.channels;
}

// h'(own - neighbor).
template <class T>
HOST_DEVICE T variation_slope(T own, T neighbor) {
  const T difference = own - neighbor;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (sizeof(T) == sizeof(float)) {  // two instructions in place of four; NaN stays NaN here, too
    float slope;
    asm("{ .reg .f32 low; max.NaN.f32 low, %1, 0fBF800000; min.NaN.f32 %0, low, 0f3F800000; }"
        : "=f"(slope)
        : "f"(difference));
    return slope;
  }
#endif
  return clamp(difference, T(-1), T(1));
}

template <class S>
HOST_DEVICE void total_variation_gradient(const TotalVariationArgs<S>& a, int64_t k) {
  using T = Wide<S>;
  const int64_t i = variation_place(a, k);
  if (i < 0 || (a.touched_only && widen(a.grad[i]) == T(0))) return;
  int64_t stride = a.channels, position = i / a.channels;
  const T own = widen(a.grid[i]);
  T sum = T(0);
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t x = position % a.vertices[axis];
    if (x > 0) sum += variation_slope(own, widen(a.grid[i - stride]));
    if (x + 1 < a.vertices[axis]) sum += variation_slope(own, widen(a.grid[i + stride]));
    position /= a.vertices[axis];
    stride *= a.vertices[axis];
  }
  add_to(a.grad[i], a.weight * sum);
}

// A listed vertex of a sparse grid.
struct SparseVertex {
  int64_t line = 0, z = 0;    // line x * Y + y
  int64_t vertex = kMissing;  // as SparseRows counts; kMissing if it does not exist
};

template <class T>
HOST_DEVICE SparseVertex sparse_vertex(const TotalVariationArgs<T>& a, const SparseRows& rows, int64_t number) {
  SparseVertex v;
  if (number < 0 || number >= a.vertices[0] * a.vertices[1] * a.vertices[2]) return v;
  const Place in_line = place(number, a.vertices[2]);
  v.line = in_line.row, v.z = in_line.column;
  v.vertex = v.line * rows.pitch(a.vertices[2]) + v.z;
  return v;
}

// Its row; kMissing if the vertex does not exist or has none.
HOST_DEVICE int64_t row_of(const SparseRows& rows, const SparseVertex& v) {
  return v.vertex < 0 ? kMissing : rows.row(v.vertex);
}

// The rows of its neighbors along each axis, below and above; kMissing where there is none. The words of all six are on
// their way together; where the lattice ends, the vertex's own word is read instead.
template <class T>
HOST_DEVICE void neighbor_rows(const TotalVariationArgs<T>& a, const SparseRows& rows, const SparseVertex& v,
                                int64_t near[3][2]) {
  const int64_t pitch = rows.pitch(a.vertices[2]), stride[3] = {a.vertices[1] * pitch, pitch, 1};
  const Place in_plane = place(v.line, a.vertices[1]);
  const int64_t at[3] = {in_plane.row, in_plane.column, v.z};
  uint64_t word[3][2];
  uint32_t bit[3][2];  // none where there is no neighbor: a branch would wait for a word before it asks for the next
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis)
    NERF_UNROLL for (int up = 0; up < 2; ++up) {
      const bool there = up ? at[axis] + 1 < a.vertices[axis] : at[axis] > 0;
      const int64_t other = v.vertex + (there ? (up ? stride[axis] : -stride[axis]) : 0);
      word[axis][up] = rows.word_of(other);
      bit[axis][up] = uint32_t(there) << (other & 31);
    }
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis)
    NERF_UNROLL for (int up = 0; up < 2; ++up) near[axis][up] = rows.row_in(word[axis][up], bit[axis][up]);
}

// As total_variation_gradient, in its order, at the n-th listed vertex of a sparse grid and its channels from first on.
template <class S>
HOST_DEVICE void sparse_total_variation_gradient(const TotalVariationArgs<S>& a, int64_t n, int64_t first,
                                                 int64_t end) {
  using T = Wide<S>;
  const SparseRows rows = a.table.sparse();
  const SparseVertex v = sparse_vertex(a, rows, a.rows[n]);
  const int64_t row = row_of(rows, v);
  if (row < 0) return;
  const Value<S>* own = a.grid + row * a.channels;
  Gradient<S>* grad = a.grad + row * a.channels;
  bool touched = !a.touched_only;
  for (int64_t c = first; c < end && !touched; ++c) touched = widen(grad[c]) != T(0);
  if (!touched) return;
  int64_t near[3][2];
  neighbor_rows(a, rows, v, near);
  for (int64_t c = first; c < end; ++c) {
    if (a.touched_only && widen(grad[c]) == T(0)) continue;
    T sum = T(0);
    NERF_UNROLL for (int axis = 2; axis >= 0; --axis)
      NERF_UNROLL for (int up = 0; up < 2; ++up)
        if (near[axis][up] >= 0)
          sum += variation_slope(T(widen(own[c])), T(widen(a.grid[near[axis][up] * a.channels + c])));
    add_to(grad[c], a.weight * sum);
  }
}

}  // namespace nerf
