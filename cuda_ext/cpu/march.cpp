// march_rays on the CPU: count, cumulative sum, fill.
#include "parallel.h"

namespace nerf::cpu {

template <class T>
void march_count(const MarchArgs<T>& a, Stream) {
  const OccupancyWords occupancy = a.occupancy();
  parallel_for(occupancy.count(), 256, [&](int64_t i) {
    const int64_t z = i % occupancy.size(2), y = i / occupancy.size(2) % occupancy.size(1);
    a.words[i] = pack_word(a.occupied, a.cells, i / (occupancy.size(1) * occupancy.size(2)), y, z);
  });
  parallel_for(a.num_rays, 64, [&](int64_t r) {
    a.ray_offsets[r + 1] = walk_ray(a.ray(r), occupancy, T(0), T(INFINITY), INT64_MAX, [](T, T) {});
  });
  a.ray_offsets[0] = 0;
  bool full = false;
  for (int64_t r = 0; r < a.num_rays; ++r) {
    const int64_t count = a.ray_offsets[r + 1];
    full = full || (a.capacity > 0 && a.ray_offsets[r] + count > a.capacity);
    *a.overflow += full && count > 0;
    a.ray_offsets[r + 1] = a.ray_offsets[r] + (full ? 0 : count);
  }
}

template <class T>
void march_fill(const MarchArgs<T>& a, Stream) {
  const OccupancyWords occupancy = a.occupancy();
  parallel_for(a.num_rays, 64, [&](int64_t r) {
    int64_t i = a.ray_offsets[r];
    walk_ray(a.ray(r), occupancy, T(0), T(INFINITY), a.ray_offsets[r + 1] - i, [&](T t_start, T t_end) {
      a.ray_indices[i] = r;
      a.t_starts[i] = t_start;
      a.t_ends[i] = t_end;
      ++i;
    });
  });
}

NERF_INSTANTIATE(march_count, MarchArgs)
NERF_INSTANTIATE(march_fill, MarchArgs)

int64_t read(const int64_t* address, Stream) { return *address; }

}  // namespace nerf::cpu
