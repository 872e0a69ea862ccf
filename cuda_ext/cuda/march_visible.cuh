// A warp walks S rays that stand beside each other, S = 1, 2 or 4: lane S * i + j belongs to ray j. Each lane looks whether
// eight lattice points in a row of its ray may be occupied; of those that may, each lane looks at one point at a time.
#pragma once

#include "march_offsets.cuh"
#include "warp.cuh"

namespace nerf::cuda {

// What a lane knows about its lattice point.
template <class T>
struct Look {
  bool visible;
  T k;                     // of the point
  Stencil<T> stencil;      // around it; all 0 where the point is not in an occupied cell
  T optical_depth, alpha;  // of this sample alone; 0 there too
};

// Whether a lattice point from k_first to k_last may lie in an occupied cell. Rounding keeps the order of points on a
// straight ray, so all that lie between two lie in the words between theirs.
template <class T>
__device__ bool may_be_occupied(const OccupancyWords& occupancy, const LatticeRay<T>& ray, T k_first, T k_last) {
  if (ray.contraction != T(0)) return true;
  T begin[3], end[3];
  ray.position(ray.t(k_first + T(0.5)), begin);
  ray.position(ray.t(k_last + T(0.5)), end);
  int64_t low[3], high[3];
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t a = nearest_cell(begin[axis], occupancy.cells[axis]) >> 2;
    const int64_t b = nearest_cell(end[axis], occupancy.cells[axis]) >> 2;
    low[axis] = min2(a, b), high[axis] = max2(a, b);
    if (high[axis] - low[axis] > 1) return true;
  }
  for (int64_t x = low[0]; x <= high[0]; ++x)
    for (int64_t y = low[1]; y <= high[1]; ++y)
      for (int64_t z = low[2]; z <= high[2]; ++z)
        if (occupancy.words[(x * occupancy.size(1) + y) * occupancy.size(2) + z]) return true;
  return false;
}

constexpr int kPointsOfLane = 8;

// Calls see(look) for each 32 / S lattice points a ray with an occupied one among those of the S rays, as long as it
// returns true or a ray is left that light goes on along. Every lane of the warp takes part in every call.
template <int S, class T, class See>
__device__ void walk_visible_by_warp(const MarchVisibleArgs<T>& a, const LatticeRay<T>& ray, int lane, const See& see) {
  constexpr int kLanes = 32 / S, kLanesOfLook = kLanes / kPointsOfLane;  // of a ray
  constexpr unsigned kRay = S == 1 ? ~0u : S == 2 ? 0x55555555u : 0x11111111u;
  const OccupancyWords occupancy = a.occupancy();
  const int own_place = lane / S, own_ray = lane % S;
  const auto on_lattice = [&](T k) { return k + T(1) > k && ray.t(k + T(0.5)) < ray.t_max; };
  bool going_on = true;  // this lane's ray
  T before = T(0);       // optical depth in front of the points that are looked at
  for (T first = T(0);; first += T(kLanes * kPointsOfLane)) {
    const T own = first + T(kPointsOfLane * own_place);
    const bool begun = going_on && on_lattice(own);
    if (!__any_sync(kAllLanes, begun)) return;
    unsigned near = __ballot_sync(kAllLanes, begun && may_be_occupied(occupancy, ray, own, own + T(kPointsOfLane - 1)));
    near = near >> own_ray & kRay;
    while (true) {
      const bool looking = going_on && near;
      if (!__any_sync(kAllLanes, looking)) break;
      Look<T> look = {};
      bool occupied = false;
      T coord[3];
      if (looking) {
        const int number = (__ffs(near) - 1) / (S * kLanesOfLook);
        near &= ~(((1ull << S * kLanesOfLook) - 1) << (S * kLanesOfLook * number));
        look.k = first + T(kLanes * number + own_place);
        if (on_lattice(look.k)) {
          ray.position(ray.t(look.k + T(0.5)), coord);
          int64_t cell[3];
          for (int axis = 0; axis < 3; ++axis) cell[axis] = nearest_cell(coord[axis], occupancy.cells[axis]);
          occupied = occupancy.holds(occupancy.around(cell), cell);
        }
      }
      if (!__any_sync(kAllLanes, occupied)) continue;
      if (occupied) {
        look.stencil = make_stencil(coord, a.density.vertices);
        look.optical_depth = a.density.at(look.stencil) * (ray.t(look.k + T(1)) - ray.t(look.k));
        look.alpha = opacity_of(look.optical_depth);
      }
      const T through = sum_up_to<S>(look.optical_depth, lane);
      // The lane below holds what lies before this sample; subtracting instead would turn a huge density to 0 or NaN.
      const T below = __shfl_up_sync(kAllLanes, through, S);
      const T transmittance = std::exp(-(before + (own_place ? below : T(0))));
      const T weight = transmittance < a.min_transmittance ? T(0) : transmittance * look.alpha;
      look.visible = occupied && weight >= a.min_weight;
      before += __shfl_sync(kAllLanes, through, 32 - S + own_ray);
      if (!see(look)) return;
      going_on = going_on && a.worth_going_on(std::exp(-before));
    }
  }
}

}  // namespace nerf::cuda
