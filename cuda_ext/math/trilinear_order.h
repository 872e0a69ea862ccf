// The adjoint of trilinear interpolation, added up in one order: the same bits in every run, without atomic additions.
//
// Points are sorted by their cell, stably, so that those of a cell follow each other in the order in which they were given.
// Whoever meets the first point of a cell walks them all, sums eight rows, one per corner, and adds these to the grid.
// Cells of one color, which is the parity of their numbers on the three axes, have no vertex in common: one color at a
// time, nobody adds to a row that another adds to, and a vertex takes its up to eight cells in the order of the colors.
//
// A cell may hold very many points. Its walk is cut at every kOrderRun-th place of the sorted points: what lies behind a
// cut is summed first, by others, into `partial`; the first walk adds these sums. At each cut one cell goes on at most, so
// that `partial` has a place for each cut.
#pragma once

#include "trilinear.h"

namespace nerf {

constexpr int kParities = 8;
constexpr int64_t kOrderRun = 32;

// Numbers of cells: those of one color follow each other, and behind all cells comes nothing().
struct CellOrder {
  int64_t half[3], per_color;

  HOST_DEVICE explicit CellOrder(const int64_t vertices[3]) : per_color(1) {
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      half[axis] = max2<int64_t>(vertices[axis], 2) / 2;  // even cells on the axis; of odd ones there are no more
      per_color *= half[axis];
    }
  }

  HOST_DEVICE int64_t number(const int64_t cell[3]) const {
    const int64_t color = (cell[0] & 1) * 4 + (cell[1] & 1) * 2 + (cell[2] & 1);
    return color * per_color + ((cell[0] >> 1) * half[1] + (cell[1] >> 1)) * half[2] + (cell[2] >> 1);
  }

  // For points whose gradient is zero: unused samples would make one endless cell.
  HOST_DEVICE int64_t nothing() const { return kParities * per_color; }
  HOST_DEVICE int64_t color(int64_t number) const { return number / per_color; }
};

template <class T>
struct TrilinearOrderArgs {
  TrilinearArgs<T> points;  // coords, grad_out, grad_grid
  bool narrow;              // numbers of cells are int32, else int64
  void* cells;              // [N] number of each point's cell; then the same, rising
  const int64_t* order;     // [N] the points in that order
  int64_t* bounds;          // [kParities + 1] where the points of a color begin
  T* partial;               // [cuts(),8,C]

  int64_t cuts() const { return (points.num_points + kOrderRun - 1) / kOrderRun; }
};

template <class T>
HOST_DEVICE int64_t cell_number(const TrilinearArgs<T>& a, int64_t n) {
  const CellOrder order(a.vertices);
  const T* grad = a.grad_out + n * a.channels;
  int64_t c = 0;
  while (c < a.channels && grad[c] == T(0)) ++c;  // of most points the first number says it
  if (c == a.channels) return order.nothing();
  int64_t cell[3];
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) cell[axis] = axis_place(a.coords[3 * n + axis], a.vertices[axis]).cell;
  return order.number(cell);
}

// Writes the bounds that lie between the points at place i - 1 and i of the sorted ones. i: 0 to N.
template <class Cell, class T>
HOST_DEVICE void find_bounds(const TrilinearOrderArgs<T>& a, int64_t i) {
  const CellOrder order(a.points.vertices);
  const Cell* cells = static_cast<const Cell*>(a.cells);
  const int64_t before = i > 0 ? order.color(int64_t(cells[i - 1])) : -1;
  const int64_t here = i < a.points.num_points ? order.color(int64_t(cells[i])) : kParities;
  for (int64_t color = before + 1; color <= here; ++color) a.bounds[color] = i;
}

HOST_DEVICE bool is_zero(float value) { return value == 0; }
HOST_DEVICE bool is_zero(double value) { return value == 0; }
HOST_DEVICE void multiply_add(float weight, float value, float& sum) { sum += weight * value; }
HOST_DEVICE void multiply_add(double weight, double value, double& sum) { sum += weight * value; }

// A piece V of a row: one number, or four. width: pieces of a row.
template <class V, class Cell, class T>
struct OrderedWalk {
  const TrilinearOrderArgs<T>& a;
  const Cell* cells;
  int64_t width, piece;
  V sum[8];

  HOST_DEVICE OrderedWalk(const TrilinearOrderArgs<T>& args, int64_t pieces, int64_t p)
      : a(args), cells(static_cast<const Cell*>(args.cells)), width(pieces), piece(p), sum{} {}

  struct Point {
    T coord[3];
    V grad;
  };

  HOST_DEVICE Point point(int64_t place) const {
    const int64_t n = a.order[place];
    const T* coord = a.points.coords + 3 * n;
    return {{coord[0], coord[1], coord[2]}, reinterpret_cast<const V*>(a.points.grad_out)[n * width + piece]};
  }

  HOST_DEVICE bool begins(int64_t place) const { return place == 0 || cells[place - 1] != cells[place]; }

  // Adds the points of one cell from a place on, up to the next cut; returns where it ended.
  HOST_DEVICE int64_t walk(int64_t place) {
    const Cell cell = cells[place];
    const int64_t end = min2((place / kOrderRun + 1) * kOrderRun, a.points.num_points);
    Point next = point(place);
    for (bool more = true; more; ++place) {
      const Point now = next;
      more = place + 1 < end && cells[place + 1] == cell;
      if (more) next = point(place + 1);  // on its way while this one is added
      if (is_zero(now.grad)) continue;
      const Stencil<T> s = make_stencil(now.coord, a.points.vertices);
      NERF_UNROLL for (int k = 0; k < 8; ++k) multiply_add(s.corner_weight(k), now.grad, sum[k]);
    }
    return place;
  }

  HOST_DEVICE V* partial(int64_t cut, int k) const {
    return reinterpret_cast<V*>(a.partial) + (cut * 8 + k) * width + piece;
  }

  // What lies behind a cut, if a cell goes on there.
  HOST_DEVICE void keep(int64_t cut) {
    const int64_t place = cut * kOrderRun;
    if (begins(place) || int64_t(cells[place]) == CellOrder(a.points.vertices).nothing()) return;
    walk(place);
    NERF_UNROLL for (int k = 0; k < 8; ++k) *partial(cut, k) = sum[k];
  }

  // All points of the cell that begins at a place, added to the grid.
  HOST_DEVICE void add(int64_t first) {
    const Cell cell = cells[first];
    int64_t place = walk(first);
    for (; place < a.points.num_points && cells[place] == cell; place += kOrderRun)  // at cuts alone
      NERF_UNROLL for (int k = 0; k < 8; ++k) multiply_add(T(1), *partial(place / kOrderRun, k), sum[k]);
    const Stencil<T> s = make_stencil(a.points.coords + 3 * a.order[first], a.points.vertices);
    for (int k = 0; k < 8; ++k) {
      if (is_zero(sum[k])) continue;
      V* target = reinterpret_cast<V*>(a.points.grad_grid) + s.corner_row(k) * width + piece;
      multiply_add(T(1), sum[k], *target);
    }
  }
};

}  // namespace nerf
