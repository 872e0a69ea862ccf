// total_variation_grad on CUDA, plain: one thread per value of the grid.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void total_variation(const TotalVariationArgs<T>& a, Stream stream) {
  const int64_t count = a.vertices[0] * a.vertices[1] * a.vertices[2] * a.channels;
  for_each(count, "total_variation_grad", stream, [a] __device__(int64_t i) { total_variation_gradient(a, i); });
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)

}  // namespace nerf::cuda_plain
