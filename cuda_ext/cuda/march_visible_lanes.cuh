// The kernels of march_visible: a warp takes four rays. Where they are close to each other, as those of one pixel are, it walks
// them side by side, else one after the other; of bent rays it takes one. A walk counts; then eight lanes of each ray fill.
//
// The count notes which of 32 lattice points at a time a ray saw: their number / 32 in the upper half of a word, a bit for
// each in the lower half. A surface takes one word or two, fog a few more; only a ray with more than kLooks of them is
// walked twice.
#pragma once

#include "march_walk.cuh"

namespace nerf::cuda {

constexpr int kRays = 4;                           // of a warp
constexpr int kBentRays = 1;                       // of a warp in a contracted grid, where they go one after the other
constexpr int kMarchWarps = 2, kMarchBlocks = 16;  // as in render_rays.cu
constexpr int kFilling = 8;                        // lanes of a ray that fill
static_assert(kLooks % kFilling == 0, "each lane reads one at a time");

// Calls see(first, points) for each eight lattice points beside each other that rays were looked at: the number of the
// first, and a bit for each that is visible, all 0 nowhere. Lanes j below S tell for ray j.
template <int S, class T, class See>
__device__ void each_eight(const Look<T>& look, int lane, const See& see) {
  unsigned points = __ballot_sync(kAllLanes, look.visible);
  if (points == 0) return;
  if constexpr (S == kRays) {  // every fourth lane, moved together
    points = points >> lane % S & 0x11111111u;
    points = (points | points >> 3) & 0x03030303u;
    points = (points | points >> 6) & 0x000f000fu;
    points = (points | points >> 12) & 0xffu;
    see(int64_t(look.k) - lane / S, points);
  } else {
  NERF_UNROLL for (int i = 0; i < 32; i += kPointsOfLane)
      see(int64_t(__shfl_sync(kAllLanes, look.k, i)), points >> i & 0xffu);
  }
}

// Notes what ray r sees, that of this lane if it is below S, and counts. Every lane of the warp must call it.
template <int S, class T, class Rows>
__device__ void count_rays(const MarchVisibleArgs<T>& a, const Rows& rows, const PixelRay<T>& ray, int64_t r, int lane) {
  int64_t count = 0, number = -1;  // of the word that is being filled
  unsigned word = 0;
  int looks = 0;
  const auto note = [&] {
    if (word != 0 && looks < kLooks) a.looks[r * kLooks + looks] = uint64_t(number) << 32 | word;
    looks += word != 0;
  };
  const bool tells = lane < S && r < a.num_rays;
  walk_visible_by_warp<S>(a, rows, ray, lane, [&](const Look<T>& look) {
    each_eight<S>(look, lane, [&](int64_t first, unsigned points) {
      if (!tells || points == 0) return;
      if (first / 32 != number) {
        note();
        number = first / 32;
        word = 0;
      }
      word |= points << first % 32;
      count += __popc(points);
    });
    return true;
  });
  if (!tells) return;
  note();
  a.ray_offsets[r + 1] = count;
}

template <class T, class Rows>
__global__ void __launch_bounds__(32 * kMarchWarps, kMarchBlocks) count_visible_kernel(MarchVisibleArgs<T> a, Rows rows, int rays_of_warp) {
  const int lane = threadIdx.x % 32;
  const int64_t first = (int64_t(blockIdx.x) * kMarchWarps + threadIdx.x / 32) * rays_of_warp;
  if (first >= a.num_rays) return;
  const LatticeRay<T> ray = a.ray(min2<int64_t>(first + lane % kRays, a.num_rays - 1));
  if (a.contraction == T(0)) {
    const PixelRay<T> of_four = pixel_ray<kRays>(ray);
    if (of_four.skips) return count_rays<kRays>(a, rows, of_four, first + lane % kRays, lane);
  }
  __shared__ PixelRay<T> rays_of_warps[kMarchWarps][kRays];
  auto& rays = rays_of_warps[threadIdx.x / 32];
  const PixelRay<T> alone = pixel_ray<1>(ray);
  if (lane < kRays) rays[lane] = alone;
  __syncwarp();
  for (int i = 0; i < rays_of_warp && first + i < a.num_rays; ++i) count_rays<1>(a, rows, rays[i], first + i, lane);
}

// The ray's samples from a walk as it was counted. Every lane of the warp must call it.
template <class T, class Rows>
__device__ void fill_by_walking(const MarchVisibleArgs<T>& a, const Rows& rows, int64_t r, int lane) {
  const LatticeRay<T> ray = a.ray(r);
  const int64_t end = a.ray_offsets[r + 1], first_of_four = r / kRays * kRays;
  int64_t place = a.ray_offsets[r];
  const auto write = [&](int64_t first, unsigned points) {  // the same for all lanes
    if (points >> lane & 1) a.write(place + __popc(points & ((1u << lane) - 1)), r, ray, T(first + lane));
    place += __popc(points);
  };
  const PixelRay<T> of_four = pixel_ray<kRays>(a.ray(min2<int64_t>(first_of_four + lane % kRays, a.num_rays - 1)));
  if (of_four.skips) {
    const int own = int(r - first_of_four);
    walk_visible_by_warp<kRays>(a, rows, of_four, lane, [&](const Look<T>& look) {
      each_eight<kRays>(look, lane, [&](int64_t first, unsigned points) {
        write(__shfl_sync(kAllLanes, first, own), __shfl_sync(kAllLanes, points, own));
      });
      return place < end;
    });
  } else {
    walk_visible_by_warp<1>(a, rows, pixel_ray<1>(ray), lane, [&](const Look<T>& look) {
      each_eight<1>(look, lane, write);
      return place < end;
    });
  }
}

template <class T, class Rows>
__global__ void __launch_bounds__(32 * kMarchWarps, kMarchBlocks) fill_visible_kernel(MarchVisibleArgs<T> a, Rows rows) {
  const int64_t thread = int64_t(blockIdx.x) * (32 * kMarchWarps) + threadIdx.x, r = thread / kFilling;
  const int lane = threadIdx.x % kFilling;
  clear_rows_of_no_ray(a, thread, int64_t(gridDim.x) * (32 * kMarchWarps));
  const bool there = r < a.num_rays;
  int64_t place = there ? a.ray_offsets[r] : 0;
  const int64_t end = there ? a.ray_offsets[r + 1] : 0;
  const LatticeRay<T> ray = a.ray(there ? r : 0);
  for (int first = 0; first < kLooks && __any_sync(kAllLanes, place < end); first += kFilling) {
    const uint64_t noted = place < end ? a.looks[r * kLooks + first + lane] : 0;  // behind the ray's last: any number
    for (int look = 0; look < kFilling && __any_sync(kAllLanes, place < end); ++look) {
      const uint64_t now = __shfl_sync(kAllLanes, noted, look, kFilling);
      const unsigned visible = place < end ? unsigned(now) : 0;
#pragma unroll
      for (int bit = lane; bit < 32; bit += kFilling)
        if (visible >> bit & 1) a.write(place + __popc(visible & ((1u << bit) - 1)), r, ray, T((now >> 32) * 32 + bit));
      place += __popc(visible);
    }
  }
  unsigned left = __ballot_sync(kAllLanes, place < end && lane == 0);  // rays that saw more than was noted
  for (; left; left &= left - 1)
    fill_by_walking(a, rows, (thread - threadIdx.x % 32 + __ffs(left) - 1) / kFilling, int(threadIdx.x % 32));
}

}  // namespace nerf::cuda
