// Sums over the 32 lanes of a warp. Every lane must call them.
#pragma once

namespace nerf::cuda {

constexpr unsigned kAllLanes = ~0u;

// Sum over the lanes up to this one; with S over every S-th of them.
template <int S = 1, class T>
__device__ T sum_up_to(T value, int lane) {
  for (int distance = S; distance < 32; distance *= 2) {
    const T below = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

// Sum over this lane and the ones after it.
template <class T>
__device__ T sum_from(T value, int lane) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const T above = __shfl_down_sync(kAllLanes, value, distance);
    if (lane + distance < 32) value += above;
  }
  return value;
}

// Sum over all lanes; with S over every S-th of them.
template <int S = 1, class T>
__device__ T warp_sum(T value) {
  for (int distance = 16; distance >= S; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

}  // namespace nerf::cuda
