// adam_step on CUDA: a grid that fills the chip strides over the values; one thread a block computes the scales.
#include "launch.cuh"

namespace nerf::cuda {
namespace {

constexpr int64_t kMaxThreads = 1 << 19;

// kChannels: C where known at compile time (it turns a division into a multiplication), else 0.
template <class T, int kChannels>
__global__ void __launch_bounds__(kThreads) adam_kernel(AdamArgs<T> a) {
  __shared__ AdamScale<T> scale;
  if (threadIdx.x == 0) scale = adam_scale(a);
  __syncthreads();
  const int64_t channels = kChannels ? kChannels : a.channels, count = a.num_rows * channels;
  const int64_t stride = int64_t(gridDim.x) * kThreads;
  for (int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x; k < count; k += stride) {
    const Place p = place(k, channels);
    const int64_t row = a.rows ? a.rows[p.row] : p.row, i = row * channels + p.column;
    if (row < 0 || row >= a.all_rows) continue;
    if (a.grad[i] != T(0)) adam_update(a, scale, i, T(a.lr[a.lr_count == 1 ? 0 : p.column]));
  }
}

}  // namespace

template <class T>
void adam(const AdamArgs<T>& a, Stream stream) {
  const auto kernel = a.channels == 1    ? adam_kernel<T, 1>
                      : a.channels == 12 ? adam_kernel<T, 12>
                      : a.channels == 28 ? adam_kernel<T, 28>
                                         : adam_kernel<T, 0>;
  launch(kernel, min2(a.num_rows * a.channels, kMaxThreads), "adam_step", stream, a);
}

NERF_INSTANTIATE(adam, AdamArgs)

}  // namespace nerf::cuda
