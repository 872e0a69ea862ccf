// march_visible on CUDA: one warp per ray, once to count and once to fill.
//
// The count notes which of 32 lattice points at a time it saw: their number / 32 in the upper half of a word, a bit for
// each in the lower half. A surface takes one word or two, fog a few more; only a ray with more than kLooks of them is
// looked at twice.
#include "march_visible.cuh"

namespace nerf::cuda {

template <class T>
void march_visible_count(const MarchVisibleArgs<T>& a, Stream stream) {
  if (!is_short(a)) return cuda_plain::march_visible_count(a, stream);
  pack_occupancy(a, stream);
  find_clear(a, stream);
  for_each(32 * a.num_rays, "march_visible: count", stream, [a] __device__(int64_t i) {
    const int64_t r = i / 32;
    const int lane = i % 32;
    int64_t count = 0;
    int looks = 0;
    walk_visible_by_warp<1>(a, pixel_ray<1>(a.ray(r)), lane, [&](const Look<T>& look) {
      const unsigned visible = __ballot_sync(kAllLanes, look.visible);
      if (visible == 0) return true;
      if (lane == 0 && looks < kLooks) a.looks[r * kLooks + looks] = uint64_t(look.k) / 32 << 32 | visible;
      ++looks;
      count += __popc(visible);
      return true;
    });
    if (lane == 0) a.ray_offsets[r + 1] = count;
  });
  counts_to_offsets(a, stream);
}

template <class T>
void march_visible_fill(const MarchVisibleArgs<T>& a, Stream stream) {
  if (!is_short(a)) return cuda_plain::march_visible_fill(a, stream);
  for_each(32 * a.num_rays, "march_visible: fill", stream, [a] __device__(int64_t i) {
    const int64_t r = i / 32, begin = a.ray_offsets[r], end = a.ray_offsets[r + 1];
    const int lane = i % 32;
    if (begin == end) return;
    const LatticeRay<T> ray = a.ray(r);
    int64_t place = begin;
    const auto write = [&](unsigned visible, T k) {
      if (visible >> lane & 1) a.write(place + __popc(visible & ((1u << lane) - 1)), r, ray, k);
      place += __popc(visible);
      return place < end;
    };
    for (int look = 0; look < kLooks; ++look) {
      const uint64_t noted = a.looks[r * kLooks + look];
      if (!write(unsigned(noted), T((noted >> 32) * 32 + lane))) return;
    }
    place = begin;
    walk_visible_by_warp<1>(a, pixel_ray<1>(ray), lane,
                            [&](const Look<T>& look) { return write(__ballot_sync(kAllLanes, look.visible), look.k); });
  });
}

NERF_INSTANTIATE(march_visible_count, MarchVisibleArgs)
NERF_INSTANTIATE(march_visible_fill, MarchVisibleArgs)

}  // namespace nerf::cuda
