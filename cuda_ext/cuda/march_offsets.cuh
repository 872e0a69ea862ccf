// What comes before and after the walk of march_rays on CUDA, for the fast and the plain walk.
#pragma once

#include "../math/march.h"
#include "launch.cuh"
#include "warp.cuh"

namespace nerf::cuda {

// Four cells side by side along z as four bits, the first in the lowest: low and high are the aligned words they lie in,
// beginning at bit shift; bits from present on are no cells.
static __device__ unsigned four_cells(unsigned low, unsigned high, unsigned shift, unsigned present) {
  unsigned bytes = __funnelshift_r(low, high, shift);
  if (present < 32) bytes &= (1u << present) - 1;
  return (__vsetne4(bytes, 0) * 0x01020408u) >> 24;
}

// An occupancy word: 4 x 4 rows of four cells along z, of which those outside of the grid are empty. Rows begin at any
// address. Where all words that they lie in are in the array, they are asked for before the first is needed.
template <class T>
__global__ void __launch_bounds__(kThreads, 1) pack_occupancy_kernel(int64_t count, MarchArgs<T> a) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const OccupancyWords occupancy = a.occupancy();
  const Place column = place(i, occupancy.size(2)), at = place(column.row, occupancy.size(1));
  const int64_t x = 4 * at.row, y = 4 * int64_t(at.column), z = 4 * int64_t(column.column), limit = a.cells[2] - z;
  const bool *begin = a.occupied, *end = begin + a.cells[0] * a.cells[1] * a.cells[2];
  const auto row = [&](int k) { return begin + ((x + k / 4) * a.cells[1] + y + k % 4) * a.cells[2] + z; };
  const auto first_word = [&](int k) { return uintptr_t(row(k)) & ~uintptr_t(3); };
  uint64_t word = 0;
  if (x + 4 <= a.cells[0] && y + 4 <= a.cells[1] && first_word(0) >= uintptr_t(begin) &&
      first_word(15) + 8 <= uintptr_t(end)) {
    const unsigned present = limit < 4 ? 8 * unsigned(limit) : 32;
    unsigned low[16], high[16];
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      low[k] = reinterpret_cast<const unsigned*>(first_word(k))[0];
      high[k] = reinterpret_cast<const unsigned*>(first_word(k))[1];
    }
#pragma unroll
    for (int k = 0; k < 16; ++k)
      word |= uint64_t(four_cells(low[k], high[k], 8 * unsigned(uintptr_t(row(k)) & 3), present)) << (4 * k);
  } else {
    word = pack_word(a.occupied, a.cells, x / 4, y / 4, z / 4);
  }
  a.words[i] = word;
}

template <class T>
void pack_occupancy(const MarchArgs<T>& a, Stream stream) {
  if (a.has_words) return;
  const int64_t count = a.occupancy().count();
  launch(pack_occupancy_kernel<T>, count, "march_rays: pack", stream, count, a);
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

// On CUDA nobody waits for what a check finds: walks end after kMaxStepsOfRay.
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
