// Sums over groups of neighboring lanes of a warp: kGroup of them, a power of two, or all 32. Every lane must call them.
#pragma once

namespace nerf::cuda {

constexpr unsigned kAllLanes = ~0u;

// Sum over the group's lanes up to this one, which is number lane of it; with S over every S-th of them.
template <int S = 1, int kGroup = 32, class T>
__device__ T sum_up_to(T value, int lane) {
  for (int distance = S; distance < kGroup; distance *= 2) {
    const T below = __shfl_up_sync(kAllLanes, value, distance, kGroup);
    if (lane >= distance) value += below;
  }
  return value;
}

// Sum over this lane and the ones after it.
template <int kGroup = 32, class T>
__device__ T sum_from(T value, int lane) {
  for (int distance = 1; distance < kGroup; distance *= 2) {
    const T above = __shfl_down_sync(kAllLanes, value, distance, kGroup);
    if (lane + distance < kGroup) value += above;
  }
  return value;
}

// Sum over all lanes of the group; with S over every S-th of them.
template <int S = 1, int kGroup = 32, class T>
__device__ T warp_sum(T value) {
  for (int distance = kGroup / 2; distance >= S; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

// The lanes of this group for which condition holds, from bit 0 on.
template <int kGroup>
__device__ unsigned group_ballot(bool condition) {
  const unsigned all = __ballot_sync(kAllLanes, condition);
  if constexpr (kGroup == 32) return all;
  return all >> (threadIdx.x % 32 / kGroup * kGroup) & ((1u << (kGroup % 32)) - 1);
}

// How many lanes a ray gets. Neighboring rays are about as long as each other, and most of a warp would have no sample
// where rays are short; but a few long rays have to be walked by many lanes each, or they take too long.
constexpr int kShortRay = 8;
constexpr int64_t kManyRays = 1 << 15;

inline bool are_short(int64_t num_samples, int64_t num_rays) {
  return num_rays >= kManyRays && num_samples <= 3 * kShortRay * num_rays;
}

}  // namespace nerf::cuda
