// From a ray to its composited values in one walk, for pictures: nothing is kept of the samples.
//
// It is march_visible, interpolate_trilinear and composite_rays in one, and the same sums: what is not visible neither adds
// nor takes light away.
#pragma once

#include "march_visible.h"
#include "stored.h"

namespace nerf {

template <class S>
struct RenderRaysArgs : MarchVisibleArgs<Wide<S>> {
  using T = Wide<S>;
  const Value<S>* values_grid;  // [X,Y,Z,C], of the density's vertices; [L,C] if it is sparse
  int64_t channels;
  int64_t rays_per_pixel;       // rays side by side whose values are averaged
  T *values, *opacity, *depth;  // [R / rays_per_pixel,C], [R], [R]
};

// Adds the ray's share of its pixel to values [C].
template <class S, class Rows>
HOST_DEVICE void render_ray(const RenderRaysArgs<S>& a, const Rows& rows, int64_t r, Wide<S>* values) {
  using T = Wide<S>;
  const LatticeRay<T> ray = a.ray(r);
  const T share = T(1) / T(a.rays_per_pixel);
  T transmittance = T(1), opacity = T(0), depth = T(0);
  walk_visible(a, rows, ray, [&](T k, T optical_depth) {
    const T alpha = opacity_of(optical_depth), weight = transmittance * alpha;
    T coord[3];
    ray.position(ray.t(k + T(0.5)), coord);
    const Stencil<T> s = make_stencil(coord, a.density.vertices, rows);
  NERF_UNROLL for (int k = 0; k < 8; ++k) {
      const int64_t row = rows.row(s.corner_row(k));
      if (Rows::kSparse && row < 0) continue;
      const Value<S>* corner = a.values_grid + row * a.channels;
      const T corner_weight = share * weight * s.corner_weight(k);
      for (int64_t c = 0; c < a.channels; ++c) values[c] += corner_weight * widen(corner[c]);
    }
    opacity += weight;
    depth += weight * ray.t(k + T(0.5));
    transmittance *= T(1) - alpha;
  });
  a.opacity[r] = opacity;
  a.depth[r] = depth;
}

template <class S, class Rows>
HOST_DEVICE void render_pixel(const RenderRaysArgs<S>& a, const Rows& rows, int64_t p) {
  using T = Wide<S>;
  T* values = a.values + p * a.channels;
  for (int64_t c = 0; c < a.channels; ++c) values[c] = T(0);
  for (int64_t i = 0; i < a.rays_per_pixel; ++i) render_ray(a, rows, p * a.rays_per_pixel + i, values);
}

}  // namespace nerf
