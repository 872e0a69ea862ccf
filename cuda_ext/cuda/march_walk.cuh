// A warp walks the S rays of a pixel side by side, S = 1, 2 or 4: lane S * i + j belongs to ray j. Each lane asks for eight
// lattice points in a row, of all S rays, whether there may be something near; where there may, each lane looks at one
// point at a time. Computed in 32 bits, of which a GPU does several times as many.
#pragma once

#include "../math/contracted_reach.h"
#include "../math/march_visible.h"
#include "warp.cuh"

namespace nerf::cuda {

constexpr int kWordEdge = 4;  // cells along the edge of an occupancy word
constexpr int kPointsOfLane = 8;

// One of the S rays of a pixel, and what holds for all of them.
template <class T>
struct PixelRay {
  LatticeRay<T> ray;
  T end;       // no lattice point of the rays lies beyond
  bool skips;  // where a lane's middle point is in a clear word, none of its points of any ray is in an occupied cell
  ContractedReach<T> reach;  // of one ray alone in a contracted grid: there each lane finds for itself whether it skips

  // Whether the points of a lane, the first of which is number `first`, all lie in the words around their middle.
  __device__ bool skips_at(T first) const {
    if (skips || ray.contraction == T(0)) return skips;
    const T half = T(kPointsOfLane - 1) / 2, middle = first + T(kPointsOfLane / 2);
    return fastest(ray, reach, ray.t(middle - half), ray.t(middle + half)) * half * ray.step < T(kWordEdge) - T(0.01);
  }
};

// Every lane must call it; S lanes side by side have the rays of a pixel. A word is clear if it is farther than a word
// from the next occupied cell: so far may a lane's points be from the one in their middle, on each axis.
template <int S, class T>
__device__ PixelRay<T> pixel_ray(const LatticeRay<T>& ray) {
  T end = ray.length() + T(1), slope = T(0), apart = T(0);
  if (!(end == end)) end = T(0);
  NERF_UNROLL for (int other = 1; other < S; ++other) end = max2(end, __shfl_xor_sync(kAllLanes, end, other));
  bool straight = ray.contraction == T(0) && ray.t_min < ray.t_max;
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) slope = max2(slope, std::abs(ray.direction[axis]));
  NERF_UNROLL for (int other = 1; other < S; ++other) {
    straight &= bool(__shfl_xor_sync(kAllLanes, int(straight), other));
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {  // straight lines are farthest apart at their ends
      const T first = ray.origin[axis] + ray.t(T(0)) * ray.direction[axis];
      const T last = ray.origin[axis] + ray.t(end) * ray.direction[axis];
      apart = max2(apart, std::abs(first - __shfl_xor_sync(kAllLanes, first, other)));
      apart = max2(apart, std::abs(last - __shfl_xor_sync(kAllLanes, last, other)));
    }
  }
  T reach = T(kPointsOfLane / 2) * ray.step * slope + apart;
  NERF_UNROLL for (int other = 1; other < S; ++other) reach = max2(reach, __shfl_xor_sync(kAllLanes, reach, other));
  PixelRay<T> found = {ray, end, straight && reach < T(kWordEdge) - T(0.01), {}};
  if (S == 1 && ray.contraction != T(0)) found.reach = contracted_reach(ray);
  return found;
}

// What a lane knows about its lattice point.
template <class T>
struct Look {
  bool visible;
  T k;                      // of the point
  Stencil<T, int> stencil;  // around it; all 0 where the point is not in an occupied cell
  T optical_depth, alpha;   // of this sample alone; 0 there too
};

// make_stencil where the cell is known.
template <class T, class Rows>
__device__ Stencil<T, int> stencil_in(const int cell[3], const int cells[3], const T* point, const Rows& rows) {
  Stencil<T, int> s = {};
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    const T fraction = clamp(point[axis], T(0), T(cells[axis])) - T(cell[axis]);
    s.weight[axis][0] = T(1) - fraction;
    s.weight[axis][1] = fraction;
  }
  s.stride[2] = 1;
  s.stride[1] = int(rows.pitch(cells[2] + 1));
  s.stride[0] = (cells[1] + 1) * s.stride[1];
  s.row = cell[0] * s.stride[0] + cell[1] * s.stride[1] + cell[2];
  return s;
}

// Calls see(look) for each 32 / S lattice points a ray with an occupied one among those of the S rays, eight beside each
// other, as long as it returns true or a ray is left that light goes on along. Every lane of the warp takes part in every call.
template <int S, class T, class Rows, class See>
__device__ void walk_visible_by_warp(const MarchVisibleArgs<T>& a, const Rows& rows, const PixelRay<T>& of_pixel,
                                     int lane, const See& see) {
  constexpr int kLanes = 32 / S, kLanesOfLook = kLanes / kPointsOfLane;  // of a ray
  const LatticeRay<T>& ray = of_pixel.ray;
  const int own_place = lane / S, own_ray = lane % S;
  const int cells[3] = {int(a.cells[0]), int(a.cells[1]), int(a.cells[2])};
  const int words_y = (cells[1] + kWordEdge - 1) / kWordEdge, words_z = (cells[2] + kWordEdge - 1) / kWordEdge;
  const auto cell_at = [&](const T* point, int cell[3]) {
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) cell[axis] = nearest_short_cell(point[axis], cells[axis]);
  };
  const auto word_of = [&](const int cell[3]) {
    return ((cell[0] >> 2) * words_y + (cell[1] >> 2)) * words_z + (cell[2] >> 2);
  };
  const auto on_lattice = [&](T k) { return k < T(kMaxStepsOfRay) && ray.t(k + T(0.5)) < ray.t_max; };
  bool going_on = true;  // this lane's ray
  T before = T(0);       // optical depth in front of the points that are looked at
  for (T first = T(0);; first += T(32 * kPointsOfLane)) {
    const T own = first + T(kPointsOfLane * lane);
    bool near = own < min2(of_pixel.end, T(kMaxStepsOfRay));
    if (!__any_sync(kAllLanes, near)) return;
    if (near && of_pixel.skips_at(own)) {
      T middle[3];
      int cell[3];
      ray.position(ray.t(own + T(kPointsOfLane / 2)), middle);
      cell_at(middle, cell);
      near = !a.clear[word_of(cell)];
    }
    unsigned lanes = __ballot_sync(kAllLanes, near);
    while (lanes) {
      int chosen = 32;  // the lane whose points this one looks at, of the next few that have something near
      NERF_UNROLL for (int i = 0; i < kLanesOfLook; ++i) {
        if (i == own_place / kPointsOfLane && lanes) chosen = __ffs(lanes) - 1;
        lanes &= lanes - 1;
      }
      Look<T> look = {};
      look.k = first + T(kPointsOfLane * chosen + own_place % kPointsOfLane);
      bool occupied = false;
      T point[3];
      int cell[3];
      if (going_on && chosen < 32 && on_lattice(look.k)) {
        ray.position(ray.t(look.k + T(0.5)), point);
        cell_at(point, cell);
        occupied = OccupancyWords::holds(a.words[word_of(cell)], cell);
      }
      if (!__any_sync(kAllLanes, occupied)) continue;
      if (occupied) {
        look.stencil = stencil_in(cell, cells, point, rows);
        look.optical_depth = a.density.at(look.stencil, rows) * (ray.t(look.k + T(1)) - ray.t(look.k));
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
      if (!__any_sync(kAllLanes, going_on)) return;
    }
  }
}

}  // namespace nerf::cuda
