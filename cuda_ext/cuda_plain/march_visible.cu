// march_visible on CUDA, plain: one thread walks a ray, once to count and once to fill.
#include "../cuda/march_offsets.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void march_visible_count(const MarchVisibleArgs<T>& a, Stream stream) {
  cuda::pack_occupancy(a, stream);
  for_each(a.num_rays, "march_visible: count", stream, [a] __device__(int64_t r) {
    int64_t count = 0;
    walk_visible(a, a.ray(r), [&](T, T) { ++count; });
    a.ray_offsets[r + 1] = count;
  });
  cuda::counts_to_offsets(a, stream);
}

template <class T>
void march_visible_fill(const MarchVisibleArgs<T>& a, Stream stream) {
  const int64_t threads = max2<int64_t>(a.num_rays, 1);
  for_each(threads, "march_visible: fill", stream, [a, threads] __device__(int64_t r) {
    cuda::clear_rows_of_no_ray(a, r, threads);
    if (r >= a.num_rays) return;
    int64_t i = a.ray_offsets[r];
    const int64_t end = a.ray_offsets[r + 1];
    if (i == end) return;
    const LatticeRay<T> ray = a.ray(r);
    walk_visible(a, ray, [&](T k, T) { a.write(i++, r, ray, k); });
  });
}

NERF_INSTANTIATE(march_visible_count, MarchVisibleArgs)
NERF_INSTANTIATE(march_visible_fill, MarchVisibleArgs)

}  // namespace nerf::cuda_plain
