// composite_rays on the CPU: one ray at a time. What belongs to no ray lies behind the last one and is cleared here.
#include <algorithm>

#include "parallel.h"

namespace nerf::cpu {

template <class T>
void composite(const CompositeArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 64, [&](int64_t r) { composite_ray(a, r); });
  std::fill(a.weights + a.ray_offsets[a.num_rays], a.weights + a.num_samples, T(0));
}

template <class T>
void composite_backward(const CompositeArgs<T>& a, Stream) {
  parallel_for(a.num_rays, 64, [&](int64_t r) { composite_ray_backward(a, r); });
  const int64_t owned = a.ray_offsets[a.num_rays];
  std::fill(a.grad_density + owned, a.grad_density + a.num_samples, T(0));
  std::fill(a.grad_values + owned * a.channels, a.grad_values + a.num_samples * a.channels, T(0));
}

NERF_INSTANTIATE(composite, CompositeArgs)
NERF_INSTANTIATE(composite_backward, CompositeArgs)

}  // namespace nerf::cpu
