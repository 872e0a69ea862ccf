// adam_step on CUDA: a grid that fills the chip strides over the parameters; one thread a block computes the scales.
#include "launch.cuh"

namespace nerf::cuda {
namespace {

constexpr int64_t kMaxThreads = 1 << 19;

template <class T>
__global__ void __launch_bounds__(kThreads) adam_kernel(AdamArgs<T> a) {
  __shared__ AdamScale<T> scale;
  if (threadIdx.x == 0) scale = adam_scale(a);
  __syncthreads();
  const int64_t stride = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < a.count; i += stride)
    if (a.grad[i] != T(0)) adam_update(a, scale, i, T(a.lr[a.lr_count == 1 ? 0 : i % a.lr_count]));
}

}  // namespace

template <class T>
void adam(const AdamArgs<T>& a, Stream stream) {
  launch(adam_kernel<T>, min2(a.count, kMaxThreads), "adam_step", stream, a);
}

NERF_INSTANTIATE(adam, AdamArgs)

}  // namespace nerf::cuda
