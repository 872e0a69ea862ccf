// adam_step on CUDA, plain: one thread per value, each with powers of its own.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void adam(const AdamArgs<T>& a, Stream stream) {
  for_each(a.num_rows * a.channels, "adam_step", stream, [a] __device__(int64_t k) {
    const int64_t n = k / a.channels, c = k % a.channels, row = a.rows ? a.rows[n] : n, i = row * a.channels + c;
    if (row < 0 || row >= a.all_rows || a.grad[i] == T(0)) return;
    adam_update(a, adam_scale(a), i, k, T(a.lr[a.lr_count == 1 ? 0 : c]));
  });
}

NERF_INSTANTIATE(adam, AdamArgs)

}  // namespace nerf::cuda_plain
