// What comes before and after the walk of march_rays on CUDA, for the fast and the plain walk.
#pragma once

#include "launch.cuh"

namespace nerf::cuda {

template <class T>
void pack_occupancy(const MarchArgs<T>& a, Stream stream) {
  for_each(a.occupancy().count(), "march_rays: pack", stream, [a] __device__(int64_t i) {
    const OccupancyWords occupancy = a.occupancy();
    const int64_t z = i % occupancy.size(2), y = i / occupancy.size(2) % occupancy.size(1);
    a.words[i] = pack_word(a.occupied, a.cells, i / (occupancy.size(1) * occupancy.size(2)), y, z);
  });
}

constexpr int kScanThreads = 1024;

// Inclusive sum over one block. Every thread must call it.
static __device__ int64_t block_sum_inclusive(int64_t value) {
  __shared__ int64_t warp_sums[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int64_t below = __shfl_up_sync(~0u, value, distance);
    if (lane >= distance) value += below;
  }
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  if (warp == 0) {
    int64_t sum = warp_sums[lane];
    for (int distance = 1; distance < 32; distance *= 2) {
      const int64_t below = __shfl_up_sync(~0u, sum, distance);
      if (lane >= distance) sum += below;
    }
    warp_sums[lane] = sum;
  }
  __syncthreads();
  if (warp > 0) value += warp_sums[warp - 1];
  __syncthreads();
  return value;
}

constexpr int kScanItems = 16;  // rays of a thread at a time

// Counts to offsets in one block: a batch has few rays, and one launch beats three. Rays from the first that does not
// fit the capacity on are dropped and counted.
static __global__ void __launch_bounds__(kScanThreads)
    offsets_kernel(int64_t num_rays, int64_t capacity, int64_t* offsets, int64_t* overflow) {
  __shared__ int64_t carry, kept, dropped;
  if (threadIdx.x == 0) carry = kept = dropped = offsets[0] = 0;
  __syncthreads();
  for (int64_t first = 0; first < num_rays; first += kScanThreads * kScanItems) {
    const int64_t own = first + int64_t(threadIdx.x) * kScanItems;
    int64_t count[kScanItems], sum = 0;
#pragma unroll
    for (int j = 0; j < kScanItems; ++j) sum += count[j] = own + j < num_rays ? offsets[own + j + 1] : 0;
    const int64_t through = carry + block_sum_inclusive(sum);
    int64_t end = through - sum, fitting = 0, unfit = 0;
#pragma unroll
    for (int j = 0; j < kScanItems; ++j) {
      end += count[j];
      if (capacity == 0 || end <= capacity) fitting = end;
      else unfit += count[j] > 0;
    }
    if (fitting) atomicMax((unsigned long long*)&kept, (unsigned long long)fitting);
    if (unfit) atomicAdd((unsigned long long*)&dropped, (unsigned long long)unfit);
    __syncthreads();
    end = through - sum;
#pragma unroll
    for (int j = 0; j < kScanItems; ++j) {
      end += count[j];
      if (own + j < num_rays) offsets[own + j + 1] = capacity == 0 || end <= capacity ? end : kept;
    }
    if (threadIdx.x == kScanThreads - 1) carry = through;
    __syncthreads();
  }
  if (threadIdx.x == 0) *overflow = dropped;
}

template <class T>
void counts_to_offsets(const MarchArgs<T>& a, Stream stream) {
  const DeviceGuard guard(stream.device);
  offsets_kernel<<<1, kScanThreads, 0, cudaStream_t(stream.handle)>>>(a.num_rays, a.capacity, a.ray_offsets,
                                                                      a.overflow);
  check(cudaGetLastError(), "march_rays: offsets");
}

}  // namespace nerf::cuda
