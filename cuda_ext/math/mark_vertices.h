// The vertices of a sparse grid that interpolation at a point reads, and those that total variation reads beside them.
#pragma once

#include "trilinear.h"

namespace nerf {

template <class T>
struct MarkVerticesArgs {
  const T* coords;  // [N,3] grid units
  int64_t num_points;
  int64_t vertices[3];
  const uint64_t* table;  // [X,Y,ceil(Z/32)], see rows.h
  uint64_t* marks;        // [X,Y,ceil(Z/32)]: in the lower half of a word the corners of cells, in the upper half also
                          // their neighbors along the axes; vertices without a row have no mark
};

// Marks the vertices first to last of one line along z that are in the lattice, in both halves if they are corners.
template <class T, class Device>
HOST_DEVICE void mark_line(const MarkVerticesArgs<T>& a, int64_t line, int64_t first, int64_t last, bool corners) {
  first = max2<int64_t>(first, 0);
  last = min2<int64_t>(last, a.vertices[2] - 1);
  const int64_t words = (a.vertices[2] + kVerticesOfWord - 1) / kVerticesOfWord;
  for (int64_t word = first / kVerticesOfWord; word <= last / kVerticesOfWord; ++word) {
    const int64_t begin = word * kVerticesOfWord;
    const int64_t low = max2<int64_t>(first - begin, 0);
    const int64_t count = min2<int64_t>(last - begin, kVerticesOfWord - 1) - low + 1;
    const uint64_t there = a.table[line * words + word] & 0xFFFFFFFFu;
    const uint64_t bits = (((uint64_t(1) << count) - 1) << low) & there;
    if (bits) Device::set_bits(a.marks + line * words + word, corners ? bits : bits << 32);
  }
}

template <class T, class Device>
HOST_DEVICE void mark_point(const MarkVerticesArgs<T>& a, int64_t n) {
  int64_t cell[3];
  for (int axis = 0; axis < 3; ++axis) cell[axis] = axis_place(a.coords[3 * n + axis], a.vertices[axis]).cell;
  for (int64_t x = cell[0] - 1; x <= cell[0] + 2; ++x) {
    if (x < 0 || x >= a.vertices[0]) continue;
    const bool beside_x = x < cell[0] || x > cell[0] + 1;
    for (int64_t y = cell[1] - 1; y <= cell[1] + 2; ++y) {
      const bool beside_y = y < cell[1] || y > cell[1] + 1;
      if (y < 0 || y >= a.vertices[1] || (beside_x && beside_y)) continue;
      const int64_t line = x * a.vertices[1] + y, z = cell[2];
      const int64_t more = beside_x || beside_y ? 0 : 1;
      mark_line<T, Device>(a, line, z - more, z + 1 + more, false);
      if (more) mark_line<T, Device>(a, line, z, z + 1, true);
    }
  }
}

}  // namespace nerf
