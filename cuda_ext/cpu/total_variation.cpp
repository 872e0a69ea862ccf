// total_variation_grad on the CPU.
#include "parallel.h"

namespace nerf::cpu {

template <class T>
void total_variation(const TotalVariationArgs<T>& a, Stream) {
  const int64_t count = a.vertices[0] * a.vertices[1] * a.vertices[2] * a.channels;
  parallel_for(count, 8192, [&](int64_t i) { total_variation_gradient(a, i); });
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)

}  // namespace nerf::cpu
