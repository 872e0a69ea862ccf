// One warp walks a ray, 32 lattice points at a time: a lane looks at one of them.
#pragma once

#include "march_offsets.cuh"
#include "warp.cuh"

namespace nerf::cuda {

// What a lane knows about its lattice point.
template <class T>
struct Look {
  bool visible;
  T k, coord[3];    // of the point; coord is 0 behind the end of the ray
  T optical_depth;  // of this sample alone; 0 where there is none
};

// Calls see(look) for each 32 lattice points with an occupied one among them, as long as it returns true. Every lane of
// the warp takes part in every call.
template <class T, class See>
__device__ void walk_visible_by_warp(const MarchVisibleArgs<T>& a, const LatticeRay<T>& ray, int lane, const See& see) {
  const OccupancyWords occupancy = a.occupancy();
  T before = T(0);  // optical depth in front of these points
  for (T first = T(0);; first += T(32)) {
    const T k = first + T(lane), t_mid = ray.t(k + T(0.5));
    const bool on_lattice = k + T(1) > k && t_mid < ray.t_max;
    if (!__any_sync(kAllLanes, on_lattice)) return;
    Look<T> look = {};
    bool occupied = false;
    if (on_lattice) {
      ray.position(t_mid, look.coord);
      int64_t cell[3];
      for (int axis = 0; axis < 3; ++axis) cell[axis] = nearest_cell(look.coord[axis], occupancy.cells[axis]);
      occupied = occupancy.holds(occupancy.around(cell), cell);
    }
    if (!__any_sync(kAllLanes, occupied)) continue;
    look.k = k;
    look.optical_depth = occupied ? a.density.at(look.coord) * (ray.t(k + T(1)) - ray.t(k)) : T(0);
    const T through = sum_up_to(look.optical_depth, lane);
    // The lane below holds what lies before this sample; subtracting instead would turn a huge density to 0 or NaN.
    const T below = __shfl_up_sync(kAllLanes, through, 1);
    const T transmittance = std::exp(-(before + (lane ? below : T(0))));
    const T weight = transmittance < a.min_transmittance ? T(0) : transmittance * opacity_of(look.optical_depth);
    look.visible = occupied && weight >= a.min_weight;
    before += __shfl_sync(kAllLanes, through, 31);
    if (!see(look) || !a.worth_going_on(std::exp(-before))) return;
  }
}

}  // namespace nerf::cuda
