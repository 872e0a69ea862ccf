// render_rays on the CPU: one ray at a time.
#include "march_offsets.h"

namespace nerf::cpu {

template <class T>
void render_rays(const RenderRaysArgs<T>& a, Stream) {
  pack_occupancy(a);
  parallel_for(a.num_rays, 64, [&](int64_t r) { render_ray(a, r); });
}

NERF_INSTANTIATE(render_rays, RenderRaysArgs)

}  // namespace nerf::cpu
