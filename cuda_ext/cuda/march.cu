// march_rays on CUDA: pack the occupancy into words, count, cumulative sum, fill.
//
// Walking is a chain of dependent reads and a batch has few rays, so each ray is cut into 32 pieces, walked by the lanes of
// one warp. The lattice point k needs no knowledge of those before it.
#include "../portable/march.h"

namespace nerf::cuda {
namespace {

// Calls walk(piece begin, piece end) for this lane's piece of the ray's lattice.
template <class T, class Walk>
__device__ auto on_piece(const LatticeRay<T>& ray, int lane, const Walk& walk) {
  const T length = floor(ray.length() / T(32)) + T(1);
  return walk(T(lane) * length, lane == 31 ? T(INFINITY) : T(lane + 1) * length);
}

}  // namespace

template <class T>
void march_count(const MarchArgs<T>& a, Stream stream) {
  pack_occupancy(a, stream);
  for_each(32 * a.num_rays, "march_rays: count", stream, [a] __device__(int64_t i) {
    const int64_t r = i / 32;
    const int lane = i % 32;
    const LatticeRay<T> ray = a.ray(r);
    const int count = on_piece(ray, lane, [&](T begin, T end) {
      return int(walk_ray(ray, a.occupancy(), begin, end, INT64_MAX, [](T) { return true; }));
    });
    int through = count;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(~0u, through, distance);
      if (lane >= distance) through += below;
    }
    a.piece_starts[i] = through - count;
    if (lane == 31) a.ray_offsets[r + 1] = through;
  });
  counts_to_offsets(a, stream);
}

template <class T>
void march_fill(const MarchArgs<T>& a, Stream stream) {
  for_each(32 * a.num_rays, "march_rays: fill", stream, [a] __device__(int64_t thread) {
    const int64_t r = thread / 32;
    const LatticeRay<T> ray = a.ray(r);
    const int64_t first = a.ray_offsets[r] + a.piece_starts[thread];
    on_piece(ray, int(thread % 32), [&](T begin, T end) { fill_samples(a, r, ray, begin, end, first); });
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
