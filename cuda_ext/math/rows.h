// Where the values of a vertex are: in a dense grid the vertices' rows stand in the order of the vertices; a sparse grid has
// rows for some vertices only, in the same order, and a table that tells which.
//
// The table has one word for every 32 vertices along z, [X,Y,ceil(Z/32)]: a bit for each vertex in the lower half (vertex z
// in bit z % 32), and in the upper half the row of the first of them. The row of another one is that plus the number of bits
// below its own: a bit vector with ranks (Jacobson 1989), a quarter of a byte per vertex.
//
// Kernels count vertices as (x * Y + y) * pitch + z. pitch is Z, or in a sparse grid the next multiple of 32.
#pragma once

#include <type_traits>

#include "host_device.h"

namespace nerf {

constexpr int64_t kMissing = -1;  // the row of a vertex that has none: its values are 0, its gradients are dropped
constexpr int kVerticesOfWord = 32;

struct DenseRows {
  static constexpr bool kSparse = false;

  HOST_DEVICE int64_t pitch(int64_t size_z) const { return size_z; }
  template <class Int>
  HOST_DEVICE Int row(Int vertex) const {
    return vertex;
  }
};

HOST_DEVICE int bits_set(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __popc(bits);
#else
  return __builtin_popcount(bits);
#endif
}

// Int: what counts vertices and rows; int32_t where both fit.
template <class Int>
struct SparseRowsOf {
  static constexpr bool kSparse = true;
  using Index = Int;

  const uint64_t* words;
  Int count;  // rows that exist: whatever the table says, there are no others

  HOST_DEVICE int64_t pitch(int64_t size_z) const {
    return (size_z + kVerticesOfWord - 1) / kVerticesOfWord * kVerticesOfWord;
  }

  HOST_DEVICE uint64_t word(Int number) const {
#ifdef __CUDA_ARCH__
    return __ldg(reinterpret_cast<const unsigned long long*>(words) + number);
#else
    return words[number];
#endif
  }

  HOST_DEVICE uint64_t word_of(Int vertex) const { return word(vertex >> 5); }

  HOST_DEVICE Int row_in(uint64_t word, uint32_t bit) const {
    const uint32_t bits = uint32_t(word), row = uint32_t(word >> 32) + uint32_t(bits_set(bits & (bit - 1)));
    return (bits & bit) && row < std::make_unsigned_t<Int>(count) ? Int(row) : Int(kMissing);
  }

  HOST_DEVICE Int row(Int vertex) const { return row_in(word_of(vertex), uint32_t(1) << (vertex & 31)); }

  // The rows of two vertices side by side along z, which nearly always share a word; step: 1, or 0 for the same vertex.
  HOST_DEVICE void pair(Int vertex, Int step, Int& low, Int& high) const {
    const uint64_t word = word_of(vertex);
    const uint32_t place = uint32_t(vertex) & 31, next = place + uint32_t(step);
    low = row_in(word, uint32_t(1) << place);
    high = next < kVerticesOfWord ? row_in(word, uint32_t(1) << next) : row(vertex + step);
  }
};

using SparseRows = SparseRowsOf<int64_t>;

// The rows of the corners of a stencil (trilinear.h), in their order. For sparse grids: in dense ones corner k is a row.
template <class Stencil, class Int>
HOST_DEVICE void corner_rows(const Stencil& s, const SparseRowsOf<Int>& rows, Int found[8]) {
  NERF_UNROLL for (int k = 0; k < 8; k += 2) rows.pair(s.corner_row(k), s.stride[2], found[k], found[k + 1]);
}
template <class Stencil, class Int>
HOST_DEVICE void corner_rows(const Stencil& s, const DenseRows&, Int found[8]) {
  NERF_UNROLL for (int k = 0; k < 8; ++k) found[k] = s.corner_row(k);
}

// Which of the two an operation was given. words: null if the grid is dense.
struct RowTable {
  const uint64_t* words = nullptr;
  int64_t count = 0;

  HOST_DEVICE SparseRows sparse() const { return {words, count}; }
  // Of no more than INT32_MAX rows.
  HOST_DEVICE SparseRowsOf<int32_t> short_sparse() const { return {words, int32_t(count)}; }
};

}  // namespace nerf
