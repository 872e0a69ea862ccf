// composite_rays on the CPU: one ray at a time.
#include "parallel.h"

namespace nerf::cpu {

template <class T>
void composite(const CompositeArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 64, [&](int64_t r) { composite_ray(a, r); });
}

template <class T>
void composite_backward(const CompositeArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 64, [&](int64_t r) { composite_ray_backward(a, r); });
}

NERF_INSTANTIATE(composite, CompositeArgs)
NERF_INSTANTIATE(composite_backward, CompositeArgs)

}  // namespace nerf::cpu
