// What comes before and after the walk of the marching operations on the CPU.
#pragma once

#include <cstdio>
#include <stdexcept>

#include "../math/march.h"
#include "device.h"

namespace nerf::cpu {

// No ray has more lattice points than a walk goes along.
template <class T>
void check_lattices(const MarchArgs<T>& a, Stream) {
  for (int64_t r = 0; r < a.num_rays; ++r) {
    const LatticeRay<T> ray = a.ray(r);
    if (!(ray.length() > T(kMaxStepsOfRay))) continue;
    char text[256];
    std::snprintf(text, sizeof text,
                  "step_size is %g, expected %lld steps along a ray at most; ray %lld has %g, from t = %g to %g with "
                  "jitter %g",
                  double(ray.step), (long long)(kMaxStepsOfRay), (long long)(r), double(ray.length()),
                  double(ray.t_min), double(ray.t_max), double(ray.jitter));
    throw std::invalid_argument(text);
  }
}

template <class T>
void pack_occupancy(const MarchArgs<T>& a, Stream) {
  if (a.has_words) return;
  const OccupancyWords occupancy = a.occupancy();
  parallel_for(occupancy.count(), 256, [&](int64_t i) {
    const int64_t z = i % occupancy.size(2), y = i / occupancy.size(2) % occupancy.size(1);
    a.words[i] = pack_word(a.occupied, a.cells, i / (occupancy.size(1) * occupancy.size(2)), y, z);
  });
}

// Counts to offsets. Rays from the first that does not fit the capacity on are dropped and counted.
template <class T>
void counts_to_offsets(const MarchArgs<T>& a, Stream) {
  a.ray_offsets[0] = 0;
  bool full = false;
  for (int64_t r = 0; r < a.num_rays; ++r) {
    const int64_t count = a.ray_offsets[r + 1];
    full = full || (a.capacity > 0 && a.ray_offsets[r] + count > a.capacity);
    *a.overflow += full && count > 0;
    a.ray_offsets[r + 1] = a.ray_offsets[r] + (full ? 0 : count);
  }
}

}  // namespace nerf::cpu
