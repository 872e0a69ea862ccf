// The adjoint of interpolate_trilinear in one order: numbers of the cells, which are sorted between the two functions, and
// the sums, one number of a row at a time.
#pragma once

#include "../device.h"
#include "../math/trilinear_order.h"

namespace nerf {
namespace portable {

template <class T>
void trilinear_cells(const Device& device, const TrilinearOrderArgs<T>& a) {
  device.for_each("interpolate_trilinear_grad: cells", a.points.num_points, [a] ON_DEVICE(int64_t n) {
    const int64_t number = cell_number(a.points, n);
    if (a.narrow) static_cast<int32_t*>(a.cells)[n] = int32_t(number);
    else static_cast<int64_t*>(a.cells)[n] = number;
  });
}

template <class Cell, class T>
void add_in_order(const Device& device, const TrilinearOrderArgs<T>& a) {
  const char* name = "interpolate_trilinear_grad: in order";
  const int64_t channels = a.points.channels;
  device.for_each(name, a.points.num_points + 1, [a] ON_DEVICE(int64_t i) { find_bounds<Cell>(a, i); });
  device.for_each(name, a.cuts() * channels, [a, channels] ON_DEVICE(int64_t i) {
    OrderedWalk<T, Cell, T>(a, channels, i % channels).keep(i / channels);
  });
  for (int color = 0; color < kParities; ++color)
    device.for_each(name, a.points.num_points * channels, [a, channels, color] ON_DEVICE(int64_t i) {
      const int64_t place = a.bounds[color] + i / channels;
      if (place >= a.bounds[color + 1]) return;
      OrderedWalk<T, Cell, T> walk(a, channels, i % channels);
      if (walk.begins(place)) walk.add(place);
    });
}

template <class T>
void trilinear_in_order(const Device& device, const TrilinearOrderArgs<T>& a) {
  if (a.narrow) add_in_order<int32_t>(device, a);
  else add_in_order<int64_t>(device, a);
}

}  // namespace portable

NERF_PORTABLE(trilinear_cells, TrilinearOrderArgs)
NERF_PORTABLE(trilinear_in_order, TrilinearOrderArgs)

}  // namespace nerf
