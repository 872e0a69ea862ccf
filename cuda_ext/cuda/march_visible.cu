// march_visible on CUDA: a warp prepares kRays rays at once and walks one after the other to count; eight lanes of each ray
// fill.
//
// The count notes which of 32 lattice points at a time it saw: their number / 32 in the upper half of a word, a bit for
// each in the lower half. A surface takes one word or two, fog a few more; only a ray with more than kLooks of them is
// looked at twice.
#include "march_visible.cuh"

namespace nerf::cuda {
namespace {

constexpr int kRays = 4;                 // of a warp that counts
constexpr int kWarps = 2, kBlocks = 16;  // as in render_rays.cu
constexpr int kFilling = 8;              // lanes of a ray

template <class T>
__global__ void __launch_bounds__(32 * kWarps, kBlocks) count_kernel(MarchVisibleArgs<T> a) {
  __shared__ PixelRay<T> rays_of_warps[kWarps][kRays];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = (int64_t(blockIdx.x) * kWarps + warp) * kRays;
  if (first >= a.num_rays) return;
  auto& rays = rays_of_warps[warp];
  const PixelRay<T> own = pixel_ray<1>(a.ray(min2<int64_t>(first + lane, a.num_rays - 1)));
  if (lane < kRays) rays[lane] = own;
  __syncwarp();
  for (int i = 0; i < kRays && first + i < a.num_rays; ++i) {
    const int64_t r = first + i;
    int64_t count = 0;
    int looks = 0;
    walk_visible_by_warp<1>(a, rays[i], lane, [&](const Look<T>& look) {
      const unsigned visible = __ballot_sync(kAllLanes, look.visible);
      if (visible == 0) return true;
      if (lane == 0 && looks < kLooks) a.looks[r * kLooks + looks] = uint64_t(look.k) / 32 << 32 | visible;
      ++looks;
      count += __popc(visible);
      return true;
    });
    if (lane == 0) a.ray_offsets[r + 1] = count;
  }
}

// The ray's samples from a walk as it was counted. Every lane of the warp must call it.
template <class T>
__device__ void fill_by_walking(const MarchVisibleArgs<T>& a, int64_t r, int lane) {
  const LatticeRay<T> ray = a.ray(r);
  const int64_t end = a.ray_offsets[r + 1];
  int64_t place = a.ray_offsets[r];
  walk_visible_by_warp<1>(a, pixel_ray<1>(ray), lane, [&](const Look<T>& look) {
    const unsigned visible = __ballot_sync(kAllLanes, look.visible);
    if (look.visible) a.write(place + __popc(visible & ((1u << lane) - 1)), r, ray, look.k);
    place += __popc(visible);
    return place < end;
  });
}

}  // namespace

template <class T>
void march_visible_count(const MarchVisibleArgs<T>& a, Stream stream) {
  if (!is_short(a)) return cuda_plain::march_visible_count(a, stream);
  pack_occupancy(a, stream);
  find_clear(a, stream);
  launch<32 * kWarps>(count_kernel<T>, 32 * ((a.num_rays + kRays - 1) / kRays), "march_visible: count", stream, a);
  counts_to_offsets(a, stream);
}

template <class T>
void march_visible_fill(const MarchVisibleArgs<T>& a, Stream stream) {
  if (!is_short(a)) return cuda_plain::march_visible_fill(a, stream);
  const int64_t threads = (kFilling * max2<int64_t>(a.num_rays, 1) + 31) / 32 * 32;
  for_each(threads, "march_visible: fill", stream, [a, threads] __device__(int64_t i) {
    clear_rows_of_no_ray(a, i, threads);
    const int64_t r = i / kFilling;
    const int lane = i % kFilling;
    int64_t place = r < a.num_rays ? a.ray_offsets[r] : 0;
    const int64_t end = r < a.num_rays ? a.ray_offsets[r + 1] : 0;
    if (place < end) {
      const LatticeRay<T> ray = a.ray(r);
      for (int look = 0; look < kLooks && place < end; ++look) {
        const uint64_t noted = a.looks[r * kLooks + look];
        const unsigned visible = unsigned(noted);
        for (int bit = lane; bit < 32; bit += kFilling)
          if (visible >> bit & 1)
            a.write(place + __popc(visible & ((1u << bit) - 1)), r, ray, T((noted >> 32) * 32 + bit));
        place += __popc(visible);
      }
    }
    unsigned left = __ballot_sync(kAllLanes, place < end && lane == 0);  // rays that saw more than was noted
    for (; left; left &= left - 1) fill_by_walking(a, (i - i % 32 + __ffs(left) - 1) / kFilling, int(i % 32));
  });
}

NERF_INSTANTIATE(march_visible_count, MarchVisibleArgs)
NERF_INSTANTIATE(march_visible_fill, MarchVisibleArgs)

}  // namespace nerf::cuda
