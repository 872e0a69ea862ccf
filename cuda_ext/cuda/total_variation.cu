// total_variation_grad on CUDA: nothing beats the plain kernel so far.
#include "launch.cuh"

namespace nerf::cuda {

template <class T>
void total_variation(const TotalVariationArgs<T>& a, Stream stream) {
  cuda_plain::total_variation(a, stream);
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)

}  // namespace nerf::cuda
