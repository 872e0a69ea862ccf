// Marching that looks at density on the way and keeps only the samples that weigh something.
//
// The lattice is that of march_rays, the weights are those of composite_rays (min_transmittance included): a sample is
// visible if its weight reaches min_weight. Density is activated after interpolation,
//
//   density = softplus(raw + shift) * scale                                     (Sun et al. 2022, eq. 9)
//
// The walk ends where no later sample can be visible.
#pragma once

#include <vector>

#include "activate_density.h"
#include "composite.h"
#include "march.h"
#include "trilinear.h"

namespace nerf {

// Raw density at the vertices, and what becomes of it between them.
template <class T>
struct DensityGrid {
  const T* raw;    // [X,Y,Z], or [L] if it is sparse
  RowTable table;  // of the grids of values, too
  int64_t vertices[3];
  T shift, scale;

  template <class Rows>
  HOST_DEVICE T at(const T* coord, const Rows& rows) const {
    return at(make_stencil(coord, vertices, rows), rows);
  }
  template <class Row, class Rows>
  HOST_DEVICE T at(const Stencil<T, Row>& s, const Rows& rows) const {
    T sum = T(0);
    if constexpr (Rows::kSparse) {
      typename Rows::Index row[8];
      corner_rows(s, rows, row);
      NERF_UNROLL for (int k = 0; k < 8; ++k) if (row[k] >= 0) sum += s.corner_weight(k) * raw[row[k]];
    } else {
      NERF_UNROLL for (int k = 0; k < 8; ++k) sum += s.corner_weight(k) * raw[s.corner_row(k)];
    }
    return softplus(sum + shift) * scale;
  }
};

constexpr int kLooks = 32;  // of a ray; few rays need more than three, but all wait for one that is walked twice

template <class T>
struct MarchVisibleArgs : MarchArgs<T> {
  DensityGrid<T> density;
  T min_transmittance, min_weight;
  T* coords;                           // [M,3] grid units: midpoints of the samples
  std::vector<std::vector<T>>* found;  // scratch on the CPU: the k that each block of rays sees
  uint64_t* looks;                     // scratch on CUDA, [R,kLooks]: see march_visible_lanes.cuh
  bool* clear;                         // on CUDA one of each word: see march_walk.cuh
  bool has_clear;                      // else it is scratch, to be filled

  // Whether a sample behind this transmittance can be visible.
  HOST_DEVICE bool worth_going_on(T transmittance) const {
    return !(transmittance < min_weight) && (!(transmittance < min_transmittance) || !(min_weight > T(0)));
  }

  HOST_DEVICE void write(int64_t i, int64_t r, const LatticeRay<T>& ray, T k) const {
    this->ray_indices[i] = r;
    this->t_starts[i] = ray.t(k);
    this->t_ends[i] = ray.t(k + T(1));
    ray.position(ray.t(k + T(0.5)), coords + 3 * i);
  }
};

// Calls emit(k, optical depth) for the visible samples of a ray, front to back. Density is looked up where occupancy was:
// at the very point that lies in an occupied cell, so that nothing but the corners of occupied cells is read.
template <class T, class Rows, class Emit>
HOST_DEVICE void walk_visible(const MarchVisibleArgs<T>& a, const Rows& rows, const LatticeRay<T>& ray, Emit emit) {
  T transmittance = T(1);
  walk_ray(ray, a.occupancy(), T(0), T(INFINITY), INT64_MAX, [&](T k) {
    T coord[3];
    ray.position(ray.t(k + T(0.5)), coord);
    const T optical_depth = a.density.at(coord, rows) * (ray.t(k + T(1)) - ray.t(k)), alpha = opacity_of(optical_depth);
    const T weight = transmittance < a.min_transmittance ? T(0) : transmittance * alpha;
    if (weight >= a.min_weight) emit(k, optical_depth);
    transmittance *= T(1) - alpha;
    return a.worth_going_on(transmittance);
  });
}

// By thread i of so many: the rows behind those of the last ray become index 0, length 0.
template <class T>
HOST_DEVICE void clear_rows_of_no_ray(const MarchVisibleArgs<T>& a, int64_t i, int64_t threads) {
  for (int64_t row = a.ray_offsets[a.num_rays] + i; row < a.capacity; row += threads) {
    a.ray_indices[row] = 0;
    a.t_starts[row] = a.t_ends[row] = T(0);
    for (int axis = 0; axis < 3; ++axis) a.coords[3 * row + axis] = T(0);
  }
}

}  // namespace nerf
