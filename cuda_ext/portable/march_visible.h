// march_visible: a walk along each ray, once to count and once to fill.
#pragma once

#include "../device.h"
#include "../march_offsets.h"
#include "../math/march_visible.h"

namespace nerf {
namespace portable {

template <class T, class Rows>
void count_visible(const Device& device, const MarchVisibleArgs<T>& a, const Rows& rows) {
  device.for_each("march_visible: count", a.num_rays, [a, rows] ON_DEVICE(int64_t r) {
    int64_t count = 0;
    walk_visible(a, rows, a.ray(r), [&](T, T) { ++count; });
    a.ray_offsets[r + 1] = count;
  });
}

template <class T>
void march_visible_count(const Device& device, const MarchVisibleArgs<T>& a) {
  check_lattices(a, device);
  pack_occupancy(a, device);
  if (a.density.table.words) count_visible(device, a, a.density.table.sparse());
  else count_visible(device, a, DenseRows());
  counts_to_offsets(a, device);
}

template <class T, class Rows>
void fill_visible(const Device& device, const MarchVisibleArgs<T>& a, const Rows& rows) {
  const int64_t threads = max2<int64_t>(a.num_rays, 1);
  device.for_each("march_visible: fill", threads, [a, rows, threads] ON_DEVICE(int64_t r) {
    clear_rows_of_no_ray(a, r, threads);
    if (r >= a.num_rays) return;
    int64_t i = a.ray_offsets[r];
    const int64_t end = a.ray_offsets[r + 1];
    if (i == end) return;
    const LatticeRay<T> ray = a.ray(r);
    walk_visible(a, rows, ray, [&](T k, T) { a.write(i++, r, ray, k); });
  });
}

template <class T>
void march_visible_fill(const Device& device, const MarchVisibleArgs<T>& a) {
  if (a.density.table.words) fill_visible(device, a, a.density.table.sparse());
  else fill_visible(device, a, DenseRows());
}

}  // namespace portable

NERF_PORTABLE(march_visible_count, MarchVisibleArgs)
NERF_PORTABLE(march_visible_fill, MarchVisibleArgs)

}  // namespace nerf
