// adam_step on CUDA, plain: one thread per parameter, each with powers of its own.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void adam(const AdamArgs<T>& a, Stream stream) {
  for_each(a.count, "adam_step", stream, [a] __device__(int64_t i) {
    if (a.grad[i] != T(0)) adam_update(a, adam_scale(a), i, T(a.lr[a.lr_count == 1 ? 0 : i % a.lr_count]));
  });
}

NERF_INSTANTIATE(adam, AdamArgs)

}  // namespace nerf::cuda_plain
