// march_rays on CUDA, plain: one thread walks a ray, once to count and once to fill.
#include "../cuda/march_offsets.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void march_count(const MarchArgs<T>& a, Stream stream) {
  cuda::pack_occupancy(a, stream);
  for_each(a.num_rays, "march_rays: count", stream, [a] __device__(int64_t r) {
    a.ray_offsets[r + 1] = walk_ray(a.ray(r), a.occupancy(), T(0), T(INFINITY), INT64_MAX, [](T, T) { return true; });
  });
  cuda::counts_to_offsets(a, stream);
}

template <class T>
void march_fill(const MarchArgs<T>& a, Stream stream) {
  for_each(a.num_rays, "march_rays: fill", stream, [a] __device__(int64_t r) {
    int64_t i = a.ray_offsets[r];
    walk_ray(a.ray(r), a.occupancy(), T(0), T(INFINITY), a.ray_offsets[r + 1] - i, [&](T t_start, T t_end) {
      a.ray_indices[i] = r;
      a.t_starts[i] = t_start;
      a.t_ends[i] = t_end;
      ++i;
      return true;
    });
  });
}

NERF_INSTANTIATE(march_count, MarchArgs)
NERF_INSTANTIATE(march_fill, MarchArgs)

int64_t read(const int64_t* address, Stream stream) { return cuda::read(address, stream); }

}  // namespace nerf::cuda_plain
