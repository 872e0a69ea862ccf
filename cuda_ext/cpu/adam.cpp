// adam_step on the CPU.
#include "parallel.h"

namespace nerf::cpu {

template <class T>
void adam(const AdamArgs<T>& a, Stream) {
  const AdamScale<T> scale = adam_scale(a);
  parallel_for(a.count, 8192, [&](int64_t i) { adam_update(a, scale, i); });
}

NERF_INSTANTIATE(adam, AdamArgs)

}  // namespace nerf::cpu
