// What comes before and after the walk of march_rays on CUDA, for the fast and the plain walk.
#pragma once

#include "../math/march.h"
#include "launch.cuh"
#include "warp.cuh"

namespace nerf::cuda {

// Four cells side by side along z as four bits, the first in the lowest; those from z = limit on are empty. Rows begin at
// any address: the four bytes are cut out of the one or two aligned words that they lie in. At the array's ends, where
// such a word is not all of the array, they are read one by one.
static __device__ unsigned four_cells(const bool* row, int64_t limit, const bool* begin, const bool* end) {
  const uintptr_t address = uintptr_t(row), first = address & ~uintptr_t(3);
  const unsigned shift = 8 * unsigned(address & 3), present = limit < 4 ? 8 * unsigned(limit) : 32;
  const bool two = shift + present > 32;
  if (first < uintptr_t(begin) || first + (two ? 8 : 4) > uintptr_t(end)) {
    unsigned bits = 0;
    for (int k = 0; k < 4 && k < limit; ++k) bits |= unsigned(row[k]) << k;
    return bits;
  }
  const unsigned* word = reinterpret_cast<const unsigned*>(first);
  unsigned bytes = __funnelshift_r(word[0], two ? word[1] : 0, shift);
  if (present < 32) bytes &= (1u << present) - 1;
  return (__vsetne4(bytes, 0) * 0x01020408u) >> 24;
}

template <class T>
void pack_occupancy(const MarchArgs<T>& a, Stream stream) {
  for_each(a.occupancy().count(), "march_rays: pack", stream, [a] __device__(int64_t i) {
    const OccupancyWords occupancy = a.occupancy();
    const Place column = place(i, occupancy.size(2)), at = place(column.row, occupancy.size(1));
    const int64_t z = 4 * int64_t(column.column);
    const bool* end = a.occupied + a.cells[0] * a.cells[1] * a.cells[2];
    uint64_t word = 0;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const int64_t x = 4 * at.row + k / 4, y = 4 * int64_t(at.column) + k % 4;
      if (x >= a.cells[0] || y >= a.cells[1]) continue;
      const bool* row = a.occupied + (x * a.cells[1] + y) * a.cells[2] + z;
      word |= uint64_t(four_cells(row, a.cells[2] - z, a.occupied, end)) << (4 * k);
    }
    a.words[i] = word;
  });
}

constexpr int kScanThreads = 1024;
constexpr int kScanRows = 8;  // of 32 rays side by side, which a warp takes at a time
static_assert(kScanThreads * kScanRows == kRaysOfTotal);

// Sum over the threads of a block of kScanThreads, in every thread.
static __device__ int64_t block_sum(int64_t value) {
  __shared__ int64_t sums[32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_sum(sums[threadIdx.x % 32]);
  __syncthreads();
  return value;
}

// The samples of each kRaysOfTotal rays.
static __global__ void __launch_bounds__(kScanThreads)
    totals_kernel(int64_t num_rays, const int64_t* offsets, int64_t* totals) {
  const int64_t first = int64_t(blockIdx.x) * kRaysOfTotal + threadIdx.x;
  int64_t sum = 0;
#pragma unroll
  for (int j = 0; j < kScanRows; ++j) {
    const int64_t r = first + j * kScanThreads;
    sum += r < num_rays ? offsets[r + 1] : 0;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) totals[blockIdx.x] = sum;
}

// Counts to offsets, kRaysOfTotal rays in a block. Rays from the first that does not fit the capacity on are dropped and
// counted, by the block of that ray.
static __global__ void __launch_bounds__(kScanThreads)
    offsets_kernel(int64_t num_rays, int64_t capacity, const int64_t* totals, int64_t* offsets, int64_t* overflow) {
  __shared__ int64_t warp_ends[32], kept;
  __shared__ int dropped;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t carry = 0;  // before the rays of this round
  for (int64_t block = threadIdx.x; block < blockIdx.x; block += kScanThreads) carry += totals[block];
  if (blockIdx.x > 0) carry = block_sum(carry);
  else if (threadIdx.x == 0) offsets[0] = 0;
  if (capacity != 0 && carry > capacity) return;
  if (threadIdx.x == 0) kept = dropped = 0;
  // One round, or all that follow if some ray does not fit.
  for (int64_t first = int64_t(blockIdx.x) * kRaysOfTotal; first < num_rays; first += kRaysOfTotal) {
    const int64_t own = first + warp * 32 * kScanRows + lane;
    int64_t count[kScanRows], end[kScanRows], before = 0;
#pragma unroll
    for (int j = 0; j < kScanRows; ++j) count[j] = own + 32 * j < num_rays ? offsets[own + 32 * j + 1] : 0;
#pragma unroll
    for (int j = 0; j < kScanRows; ++j) {
      end[j] = before + sum_up_to(count[j], lane);
      before = __shfl_sync(kAllLanes, end[j], 31);
    }
    if (lane == 0) warp_ends[warp] = before;
    __syncthreads();
    if (warp == 0) warp_ends[lane] = sum_up_to(warp_ends[lane], lane);
    __syncthreads();
    const int64_t offset = carry + (warp ? warp_ends[warp - 1] : 0);
    carry += warp_ends[31];
    int unfit = 0;
#pragma unroll
    for (int j = 0; j < kScanRows; ++j) {
      end[j] += offset;
      if (capacity == 0 || end[j] <= capacity) continue;
      if (end[j] - count[j] <= capacity) kept = end[j] - count[j];  // the first that does not fit, one in the batch
      unfit += count[j] > 0;
    }
    if (unfit) atomicAdd(&dropped, unfit);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kScanRows; ++j)
      if (own + 32 * j < num_rays) offsets[own + 32 * j + 1] = capacity == 0 || end[j] <= capacity ? end[j] : kept;
    if (capacity == 0 || carry <= capacity) return;
  }
  __syncthreads();
  if (threadIdx.x == 0) *overflow = dropped;
}

// On CUDA nobody waits for what a check finds: walks end after kMaxLatticePoints.
template <class T>
void check_lattices(const MarchArgs<T>&, Stream) {}

// overflow is 0 before.
template <class T>
void counts_to_offsets(const MarchArgs<T>& a, Stream stream) {
  const DeviceGuard guard(stream.device);
  const auto queue = cudaStream_t(stream.handle);
  const unsigned blocks = unsigned(max2<int64_t>(a.totals_count(), 1));
  if (blocks > 1) totals_kernel<<<blocks, kScanThreads, 0, queue>>>(a.num_rays, a.ray_offsets, a.totals);
  offsets_kernel<<<blocks, kScanThreads, 0, queue>>>(a.num_rays, a.capacity, a.totals, a.ray_offsets, a.overflow);
  check(cudaGetLastError(), "march_rays: offsets");
}

}  // namespace nerf::cuda
