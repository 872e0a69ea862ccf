// render_rays on the CPU: one pixel at a time.
#include "march_offsets.h"

namespace nerf::cpu {

template <class T>
void render_rays(const RenderRaysArgs<T>& a, Stream) {
  pack_occupancy(a);
  parallel_for(a.num_rays / a.rays_per_pixel, 64 / a.rays_per_pixel, [&](int64_t p) { render_pixel(a, p); });
}

NERF_INSTANTIATE(render_rays, RenderRaysArgs)

}  // namespace nerf::cpu
