// total_variation_grad on CUDA, plain: one thread per value of the grid.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void total_variation(const TotalVariationArgs<T>& a, Stream stream) {
  for_each(variation_count(a), "total_variation_grad", stream,
           [a] __device__(int64_t k) { total_variation_gradient(a, k); });
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)

}  // namespace nerf::cuda_plain
