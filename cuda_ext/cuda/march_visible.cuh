// One warp walks a ray, 32 lattice points at a time: a lane looks at one of them.
#pragma once

#include "march_offsets.cuh"
#include "warp.cuh"

namespace nerf::cuda {

// What a lane knows about its lattice point.
template <class T>
struct Look {
  bool visible;
  T t_start, t_end, optical_depth;  // of this sample alone; 0 where there is none

  __device__ T t_mid() const { return T(0.5) * (t_start + t_end); }
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
    bool occupied = false;
    if (on_lattice) {
      int64_t cell[3];
      ray.cell_at(t_mid, occupancy.cells, cell);
      occupied = occupancy.holds(occupancy.around(cell), cell);
    }
    if (!__any_sync(kAllLanes, occupied)) continue;
    Look<T> look = {false, T(0), T(0), T(0)};
    if (occupied) {
      look.t_start = ray.t(k);
      look.t_end = ray.t(k + T(1));
      T coord[3];
      ray.position(look.t_mid(), coord);
      look.optical_depth = a.density.at(coord) * (look.t_end - look.t_start);
    }
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
