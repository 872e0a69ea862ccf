// march_rays on the CPU: count, cumulative sum, fill.
#include "march_offsets.h"

namespace nerf::cpu {

template <class T>
void march_count(const MarchArgs<T>& a, Stream) {
  pack_occupancy(a);
  parallel_for(a.num_rays, 64, [&](int64_t r) {
    const auto skip = [](T, T) { return true; };
    a.ray_offsets[r + 1] = walk_ray(a.ray(r), a.occupancy(), T(0), T(INFINITY), INT64_MAX, skip);
  });
  counts_to_offsets(a);
}

template <class T>
void march_fill(const MarchArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 64, [&](int64_t r) {
    int64_t i = a.ray_offsets[r];
    walk_ray(a.ray(r), a.occupancy(), T(0), T(INFINITY), a.ray_offsets[r + 1] - i, [&](T t_start, T t_end) {
      a.ray_indices[i] = r;
      a.t_starts[i] = t_start;
      a.t_ends[i] = t_end;
      ++i;
      return true;
    });
  });
}

NERF_INSTANTIATE(march_count, MarchArgs)
NERF_INSTANTIATE(march_fill, MarchArgs)

int64_t read(const int64_t* address, Stream) { return *address; }

}  // namespace nerf::cpu
