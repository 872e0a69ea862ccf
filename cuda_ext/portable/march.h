// march_rays: a walk along each ray, once to count and once to fill.
#pragma once

#include "../device.h"
#include "../march_offsets.h"
#include "../math/march.h"

namespace nerf {
namespace portable {

// Fills words and ray_offsets (clamped to the capacity unless that is 0) and counts the overflow.
template <class T>
void march_count(const Device& device, const MarchArgs<T>& a) {
  check_lattices(a, device);
  pack_occupancy(a, device);
  device.for_each("march_rays: count", a.num_rays, 64, [a] ON_DEVICE(int64_t r) {
    a.ray_offsets[r + 1] = walk_ray(a.ray(r), a.occupancy(), T(0), T(INFINITY), INT64_MAX, [](T) { return true; });
  });
  counts_to_offsets(a, device);
}

// Fills ray_indices, t_starts and t_ends for the offsets.
template <class T>
void march_fill(const Device& device, const MarchArgs<T>& a) {
  device.for_each("march_rays: fill", a.num_rays, 64,
                  [a] ON_DEVICE(int64_t r) { fill_samples(a, r, a.ray(r), T(0), T(INFINITY), a.ray_offsets[r]); });
}

}  // namespace portable

NERF_PORTABLE(march_count, MarchArgs)
NERF_PORTABLE(march_fill, MarchArgs)

}  // namespace nerf
