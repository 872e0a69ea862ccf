// march_visible on CUDA: one warp per ray, once to count and once to fill. Looking twice costs less than keeping what the
// first look saw, whose size nobody knows.
#include "march_visible.cuh"

namespace nerf::cuda {

template <class T>
void march_visible_count(const MarchVisibleArgs<T>& a, Stream stream) {
  pack_occupancy(a, stream);
  for_each(32 * a.num_rays, "march_visible: count", stream, [a] __device__(int64_t i) {
    const int64_t r = i / 32;
    const int lane = i % 32;
    int64_t count = 0;
    walk_visible_by_warp(a, a.ray(r), lane, [&](const Look<T>& look) {
      count += __popc(__ballot_sync(kAllLanes, look.visible));
      return true;
    });
    if (lane == 0) a.ray_offsets[r + 1] = count;
  });
  counts_to_offsets(a, stream);
}

template <class T>
void march_visible_fill(const MarchVisibleArgs<T>& a, Stream stream) {
  for_each(32 * a.num_rays, "march_visible: fill", stream, [a] __device__(int64_t i) {
    const int64_t r = i / 32, end = a.ray_offsets[r + 1];
    const int lane = i % 32;
    int64_t place = a.ray_offsets[r];
    if (place == end) return;
    const LatticeRay<T> ray = a.ray(r);
    walk_visible_by_warp(a, ray, lane, [&](const Look<T>& look) {
      const unsigned visible = __ballot_sync(kAllLanes, look.visible);
      if (look.visible) a.write(place + __popc(visible & ((1u << lane) - 1)), r, ray, look.t_start, look.t_end);
      place += __popc(visible);
      return place < end;
    });
  });
}

NERF_INSTANTIATE(march_visible_count, MarchVisibleArgs)
NERF_INSTANTIATE(march_visible_fill, MarchVisibleArgs)

}  // namespace nerf::cuda
