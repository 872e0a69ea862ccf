// render_rays: one pixel at a time.
#pragma once

#include "../device.h"
#include "../march_offsets.h"
#include "../math/render_rays.h"

namespace nerf {
namespace portable {

template <class S, class Rows>
void render_rays_in(const Device& device, const RenderRaysArgs<S>& a, const Rows& rows) {
  device.for_each("render_rays", a.num_rays / a.rays_per_pixel, 64 / a.rays_per_pixel,
                  [a, rows] ON_DEVICE(int64_t p) { render_pixel(a, rows, p); });
}

template <class S>
void render_rays(const Device& device, const RenderRaysArgs<S>& a) {
  check_lattices(a, device);
  pack_occupancy(a, device);
  if (a.density.table.words) render_rays_in(device, a, a.density.table.sparse());
  else render_rays_in(device, a, DenseRows());
}

}  // namespace portable

NERF_PORTABLE(render_rays, RenderRaysArgs)
NERF_BODY_FOR(render_rays, RenderRaysArgs, ShortValues)

}  // namespace nerf
