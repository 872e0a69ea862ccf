// The marked rows of a sparse grid as a sparse grid of their own, the window: see math/mark_vertices.h and math/rows.h.
//
// Words are taken kWordsOfTile at a time. The marks of each tile are counted, a cumulative sum tells how many there are up to
// the end of a tile, and then each tile lists its own. A window that has room for fewer rows lacks the last ones.
#pragma once

#include "place.h"
#include "rounding.h"
#include "rows.h"
#include "several.h"

namespace nerf {

constexpr int64_t kWordsOfTile = 8;

// S: as values are stored.
template <class S>
struct BringRowsArgs {
  const S* grid;  // [L,C]
  int64_t all_rows, channels;
  const uint64_t *marks, *table;  // [X,Y,ceil(Z/32)]
  int64_t words, words_of_line, size_z;
  int64_t* ends;     // [tiles] vertices up to a tile's end: in the lower half all marked ones, in the upper half corners
  uint64_t* window;  // [X,Y,ceil(Z/32)] the table of the window
  int64_t capacity, corner_capacity;
  Wide<S>* values;  // [capacity,C]
  int64_t* stored;  // [capacity] rows of the grid
  int64_t *corners, *vertices;  // [corner_capacity] rows of the window, and their vertices
  int64_t* counts;              // [2] marked vertices, and corners of them

  HOST_DEVICE int64_t tiles() const { return (words + kWordsOfTile - 1) / kWordsOfTile; }
};

// A vertex is marked in the upper half of a word; a corner is one that is marked in the lower half too.
template <class T>
HOST_DEVICE void count_tile(const BringRowsArgs<T>& a, int64_t tile) {
  int64_t rows = 0, corners = 0;
  const int64_t first = tile * kWordsOfTile, end = min2(first + kWordsOfTile, a.words);
  for (int64_t word = first; word < end; ++word) {
    const uint32_t read = uint32_t(a.marks[word] >> 32);
    rows += bits_set(read);
    corners += bits_set(read & uint32_t(a.marks[word]));
  }
  a.ends[tile] = rows | corners << 32;
}

template <class T>
HOST_DEVICE void list_tile(const BringRowsArgs<T>& a, int64_t tile) {
  const uint64_t before = tile ? uint64_t(a.ends[tile - 1]) : 0;
  int64_t row = int64_t(before & 0xFFFFFFFFu), corner = int64_t(before >> 32);
  const int64_t first = tile * kWordsOfTile, end = min2(first + kWordsOfTile, a.words);
  for (int64_t word = first; word < end; ++word) {
    const uint64_t marks = a.marks[word], known = a.table[word];
    const uint32_t read = uint32_t(marks >> 32);
    a.window[word] = read | uint64_t(row) << 32;
    const int64_t line = word / a.words_of_line;
    const int64_t vertex = line * a.size_z + (word - line * a.words_of_line) * kVerticesOfWord;
    for (uint32_t left = read; left; left &= left - 1, ++row) {
      const uint32_t bit = left & (0u - left);  // the lowest one that is left
      const bool fits = row < a.capacity;
      if (fits) a.stored[row] = SparseRows{nullptr, a.all_rows}.row_in(known, bit);
      if (!(marks & bit)) continue;
      if (corner < a.corner_capacity) {
        a.corners[corner] = fits ? row : kMissing;
        a.vertices[corner] = fits ? vertex + bits_set(bit - 1) : kMissing;
      }
      ++corner;
    }
  }
  if (tile + 1 == a.tiles()) {
    a.counts[0] = row;
    a.counts[1] = corner;
  }
}

// Behind the last ones.
template <class T>
HOST_DEVICE void clear_tail(const BringRowsArgs<T>& a, int64_t i) {
  if (i >= a.counts[0] && i < a.capacity) a.stored[i] = kMissing;
  if (i >= a.counts[1] && i < a.corner_capacity) a.corners[i] = a.vertices[i] = kMissing;
}

// Pack i of the window's values, of kCount channels.
template <int kCount, class S>
HOST_DEVICE void copy_values(const BringRowsArgs<S>& a, int64_t i) {
  const Place p = place(i, a.channels / kCount);
  const int64_t row = a.stored[p.row], column = int64_t(p.column) * kCount;
  Several<Wide<S>, kCount> values = {};
  if (row >= 0) {
    const auto stored = Several<S, kCount>::load(a.grid + row * a.channels + column);
    NERF_UNROLL for (int c = 0; c < kCount; ++c) values.v[c] = widen(stored.v[c]);
  }
  values.store(a.values + int64_t(p.row) * a.channels + column);
}

}  // namespace nerf
