// march_rays on CUDA: pack the occupancy into words, count, cumulative sum, fill.
//
// Walking is a chain of dependent reads and a batch has few rays, so each ray is cut into 32 pieces, walked by the lanes of
// one warp. The lattice point k needs no knowledge of those before it.
#include "launch.cuh"

namespace nerf::cuda {
namespace {

constexpr int kScanThreads = 1024;

// Inclusive sum over one block. Every thread must call it.
__device__ int64_t block_sum_inclusive(int64_t value) {
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

// Counts to offsets in one block: a batch has few rays, and one launch beats three. Rays from the first that does not
// fit the capacity on are dropped and counted.
__global__ void __launch_bounds__(kScanThreads) offsets_kernel(int64_t num_rays, int64_t capacity, int64_t* offsets,
                                                              int64_t* overflow) {
  __shared__ int64_t carry, kept, dropped;
  if (threadIdx.x == 0) carry = kept = dropped = offsets[0] = 0;
  __syncthreads();
  for (int64_t first = 0; first < num_rays; first += kScanThreads) {
    const int64_t r = first + threadIdx.x;
    const int64_t count = r < num_rays ? offsets[r + 1] : 0;
    const int64_t end = carry + block_sum_inclusive(count);
    const bool fits = capacity == 0 || end <= capacity;
    if (fits) atomicMax((unsigned long long*)&kept, (unsigned long long)end);
    if (!fits && count > 0) atomicAdd((unsigned long long*)&dropped, 1ull);
    __syncthreads();
    if (r < num_rays) offsets[r + 1] = fits ? end : kept;
    if (threadIdx.x == kScanThreads - 1) carry = end;
    __syncthreads();
  }
  if (threadIdx.x == 0) *overflow = dropped;
}

// Calls walk(piece begin, piece end) for this lane's piece of the ray's lattice.
template <class T, class Walk>
__device__ auto on_piece(const LatticeRay<T>& ray, int lane, const Walk& walk) {
  const T length = floor(ray.length() / T(32)) + T(1);
  return walk(T(lane) * length, lane == 31 ? T(INFINITY) : T(lane + 1) * length);
}

}  // namespace

template <class T>
void march_count(const MarchArgs<T>& a, Stream stream) {
  for_each(a.occupancy().count(), "march_rays: pack", stream, [a] __device__(int64_t i) {
    const OccupancyWords occupancy = a.occupancy();
    const int64_t z = i % occupancy.size(2), y = i / occupancy.size(2) % occupancy.size(1);
    a.words[i] = pack_word(a.occupied, a.cells, i / (occupancy.size(1) * occupancy.size(2)), y, z);
  });
  for_each(32 * a.num_rays, "march_rays: count", stream, [a] __device__(int64_t i) {
    const int64_t r = i / 32;
    const int lane = i % 32;
    const LatticeRay<T> ray = a.ray(r);
    const int count = on_piece(ray, lane, [&](T begin, T end) {
      return int(walk_ray(ray, a.occupancy(), begin, end, INT64_MAX, [](T, T) {}));
    });
    int through = count;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(~0u, through, distance);
      if (lane >= distance) through += below;
    }
    a.piece_starts[i] = through - count;
    if (lane == 31) a.ray_offsets[r + 1] = through;
  });
  const DeviceGuard guard(stream.device);
  offsets_kernel<<<1, kScanThreads, 0, cudaStream_t(stream.handle)>>>(a.num_rays, a.capacity, a.ray_offsets,
                                                                     a.overflow);
  check(cudaGetLastError(), "march_rays: offsets");
}

template <class T>
void march_fill(const MarchArgs<T>& a, Stream stream) {
  for_each(32 * a.num_rays, "march_rays: fill", stream, [a] __device__(int64_t thread) {
    const int64_t r = thread / 32;
    const LatticeRay<T> ray = a.ray(r);
    int64_t i = a.ray_offsets[r] + a.piece_starts[thread];
    on_piece(ray, int(thread % 32), [&](T begin, T end) {
      return walk_ray(ray, a.occupancy(), begin, end, a.ray_offsets[r + 1] - i, [&](T t_start, T t_end) {
        a.ray_indices[i] = r;
        a.t_starts[i] = t_start;
        a.t_ends[i] = t_end;
        ++i;
      });
    });
  });
}

NERF_INSTANTIATE(march_count, MarchArgs)
NERF_INSTANTIATE(march_fill, MarchArgs)

int64_t read(const int64_t* address, Stream stream) {
  const DeviceGuard guard(stream.device);
  int64_t value = 0;
  const cudaStream_t queue = cudaStream_t(stream.handle);
  check(cudaMemcpyAsync(&value, address, sizeof value, cudaMemcpyDeviceToHost, queue), "read");
  check(cudaStreamSynchronize(queue), "read");
  return value;
}

}  // namespace nerf::cuda
