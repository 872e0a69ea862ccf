// render_rays: one pixel at a time.
#pragma once

#include "../device.h"
#include "../march_offsets.h"
#include "../math/render_rays.h"

namespace nerf {
namespace portable {

template <class T>
void render_rays(const Device& device, const RenderRaysArgs<T>& a) {
  check_lattices(a, device);
  pack_occupancy(a, device);
  device.for_each("render_rays", a.num_rays / a.rays_per_pixel, 64 / a.rays_per_pixel,
                  [a] ON_DEVICE(int64_t p) { render_pixel(a, p); });
}

}  // namespace portable

NERF_PORTABLE(render_rays, RenderRaysArgs)

}  // namespace nerf
