// Walking one ray over its lattice of samples.
//
// Sample k of a ray covers [t_min + (k + jitter) * step, t_min + (k + 1 + jitter) * step], where t_min and t_max are
// the ray's near and far after clipping to the grid. It exists if its midpoint lies before t_max in an occupied cell.
// t is computed from the integer k, never by adding up, so skipping empty cells cannot change which samples exist.
// Compiled without fused multiply-add: then g++, nvcc and PyTorch agree in every bit.
//
// With a contraction the grid holds all of space: an inner box, and around it a shell into which everything outside is
// pressed. t then is contracted distance: the distance along the ray inside the box, and outside of it that distance
// pressed as the shell is, so that the same lattice grows with the cells and ends, at infinity, at a finite t.
#pragma once

#include "host_device.h"
#include "place.h"

namespace nerf {

// Occupancy as bits: a word holds 4 x 4 x 4 cells, bit 16 * (x % 4) + 4 * (y % 4) + z % 4.
// A word of zero lets the walk leave 64 cells in one stride.
struct OccupancyWords {
  const uint64_t* words;  // [ceil(cells_x / 4), ceil(cells_y / 4), ceil(cells_z / 4)]
  int64_t cells[3];

  HOST_DEVICE int64_t size(int axis) const { return (cells[axis] + 3) / 4; }
  HOST_DEVICE int64_t count() const { return size(0) * size(1) * size(2); }
  HOST_DEVICE uint64_t around(const int64_t cell[3]) const {
    return words[((cell[0] >> 2) * size(1) + (cell[1] >> 2)) * size(2) + (cell[2] >> 2)];
  }
  template <class Cell>
  HOST_DEVICE static bool holds(uint64_t word, const Cell cell[3]) {
    return word >> (16 * (cell[0] & 3) + 4 * (cell[1] & 3) + (cell[2] & 3)) & 1;
  }
};

HOST_DEVICE uint64_t pack_word(const bool* occupied, const int64_t cells[3], int64_t x4, int64_t y4, int64_t z4) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(occupied);  // a view may hold others than 0 and 1
  uint64_t word = 0;
  for (int64_t x = 4 * x4; x < min2(4 * x4 + 4, cells[0]); ++x)
    for (int64_t y = 4 * y4; y < min2(4 * y4 + 4, cells[1]); ++y)
      for (int64_t z = 4 * z4; z < min2(4 * z4 + 4, cells[2]); ++z)
        if (bytes[(x * cells[1] + y) * cells[2] + z] != 0) word |= uint64_t(1) << (16 * (x % 4) + 4 * (y % 4) + z % 4);
  return word;
}

// Maps [0, infinity) to [0, limit), with slope 1 at 0.
template <class T>
HOST_DEVICE T squash(T x, T limit) {
  return x / (T(1) + x / limit);
}

// The inverse of squash. x / limit is clamped to 1 - 2^-22, so that the result is finite at limit and beyond.
template <class T>
HOST_DEVICE T unsquash(T x, T limit) {
  return x / (T(1) - min2(x / limit, T(1) - T(1) / T(1 << 22)));
}

// Of a ray; there its walk ends. More are no picture but a step, a jitter or an end that is no length of this scene.
#ifndef NERF_MAX_STEPS_OF_RAY  // fewer in tests/fuzz/ops.py, for tools under which a point takes long
#define NERF_MAX_STEPS_OF_RAY (1 << 20)
#endif
constexpr int64_t kMaxStepsOfRay = NERF_MAX_STEPS_OF_RAY;

template <class T>
struct LatticeRay {
  // Grid units; the direction is not unit, t is world distance. With a contraction in units of the inner box, [-1, 1].
  T origin[3], direction[3];
  T jitter, step, t_min, t_max;
  T contraction;   // thickness of the shell in halves of the inner box; 0: there is none, all is straight
  T half[3];       // of the grid, in cells: its center
  T leave, limit;  // t from which on its steps grow, and how much of t there is behind it

  HOST_DEVICE T t(T k) const { return t_min + (k + jitter) * step; }
  // About how many lattice points lie before t_max.
  HOST_DEVICE T length() const { return max2(T(0), (t_max - t_min) / step - jitter); }

  // Cells of the grid from its center to a face of the inner box.
  HOST_DEVICE T inner(int axis) const { return half[axis] / (T(1) + contraction); }

  // World distance to contracted distance and back; outside of contractions both are one.
  HOST_DEVICE T contracted(T distance) const {
    return distance > leave ? leave + squash(distance - leave, limit) : distance;
  }
  HOST_DEVICE T distance(T t) const { return t > leave ? leave + unsquash(t - leave, limit) : t; }

  // Where the ray is at t, in grid units. Contraction: Barron et al. 2022, eq. 10, with the norm of a cube, and a shell
  // of any thickness whose cells begin as large as those of the box.
  HOST_DEVICE void position(T t, T point[3]) const {
    if (contraction == T(0)) {
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) point[axis] = origin[axis] + t * direction[axis];
      return;
    }
    const T far = distance(t);
    T norm = T(0);
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      point[axis] = origin[axis] + far * direction[axis];
      norm = max2(norm, std::abs(point[axis]));
    }
    const T shrink = norm > T(1) ? (T(1) + squash(norm - T(1), contraction)) / norm : T(1);
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis)
      point[axis] = half[axis] + inner(axis) * (shrink * point[axis]);
  }

  // Up to which t the ray, now at t in this cell, stays in the 4 x 4 x 4 cells of its word and surely runs straight.
  HOST_DEVICE T leaves_block(T t, const int64_t cell[3]) const {
    T t_exit = t_max;
    if (contraction != T(0)) {  // straight inside the inner box alone
      if (t > leave) return t;
      NERF_UNROLL for (int axis = 0; axis < 3; ++axis)
        if (std::abs(origin[axis] + t * direction[axis]) > T(1)) return t;
      t_exit = min2(t_exit, leave);
    }
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      const T d = direction[axis];
      T wall = T(((cell[axis] >> 2) + (d > T(0) ? 1 : 0)) * 4);
      if (contraction != T(0)) wall = clamp((wall - half[axis]) / inner(axis), T(-1), T(1));
      if (d != T(0)) t_exit = min2(t_exit, (wall - origin[axis]) / d);
    }
    return t_exit;
  }
  HOST_DEVICE void cell_at(T t, const int64_t cells[3], int64_t cell[3]) const {
    T point[3];
    position(t, point);
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) cell[axis] = nearest_cell(point[axis], cells[axis]);
  }
};

// From which distance on the steps of a ray grow, in units of the inner box, and how much contracted distance is behind that.
//
// They grow once its steepest axis has left the inner box and is farther out than the ray passes by the middle, and in all
// they are as long as the way that is left: so no step is much longer than it is in the box.
template <class T>
HOST_DEVICE void leave_inner_box(const T origin[3], const T direction[3], T contraction, T& leave, T& limit) {
  T steepest = T(0), outward = T(0), passes = T(0);
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    if (std::abs(direction[axis]) > steepest) {
      steepest = std::abs(direction[axis]);
      outward = direction[axis] > T(0) ? origin[axis] : -origin[axis];
    }
  }
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis)
    passes = max2(passes, std::abs(origin[axis] - direction[axis] / steepest * outward));
  leave = (max2(passes, T(1)) - outward) / steepest;
  limit = max2(contraction, std::sqrt(passes * (T(1) + contraction))) / steepest;
  if (steepest == T(0)) leave = limit = T(INFINITY);
}

// The ray in the contracted grid. Nothing bounds it but near and far: the grid is all of space.
template <class T>
HOST_DEVICE void contract_ray(LatticeRay<T>& ray, T near, T far) {
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    ray.origin[axis] = (ray.origin[axis] - ray.half[axis]) / ray.inner(axis);
    ray.direction[axis] = ray.direction[axis] / ray.inner(axis);
  }
  leave_inner_box(ray.origin, ray.direction, ray.contraction, ray.leave, ray.limit);
  ray.t_min = ray.contracted(near);
  ray.t_max = ray.contracted(min2(far, ray.leave + ray.limit * T(1 << 22)));
}

// Slab test against [0, cells] on each axis. A ray that misses gets t_min > t_max.
template <class T>
HOST_DEVICE LatticeRay<T> clip_ray(const T* origin, const T* direction, T jitter, T near, T far, T step,
                                   const int64_t cells[3], T contraction = T(0)) {
  LatticeRay<T> ray;
  ray.jitter = jitter;
  ray.step = step;
  ray.contraction = contraction;
  ray.t_min = near;
  ray.t_max = far;
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    const T o = ray.origin[axis] = origin[axis];
    const T d = ray.direction[axis] = direction[axis];
    const T upper = T(cells[axis]);
    ray.half[axis] = upper / T(2);
    if (contraction != T(0)) continue;
    if (d == T(0)) {
      if (!(o >= T(0) && o <= upper)) ray.t_max = T(-1), ray.t_min = T(0);
      continue;
    }
    const T at_lower = (T(0) - o) / d, at_upper = (upper - o) / d;
    ray.t_min = max2(ray.t_min, min2(at_lower, at_upper));
    ray.t_max = min2(ray.t_max, max2(at_lower, at_upper));
  }
  if (contraction != T(0)) contract_ray(ray, near, far);
  // A ray with a NaN in it has no samples, nor has one that never leaves the grid: without a direction, and without an end.
  bool valid = near == near && far == far && ray.t_max - ray.t_min < T(INFINITY);
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis)
    valid = valid && ray.origin[axis] == ray.origin[axis] && ray.direction[axis] == ray.direction[axis];
  if (!valid) ray.t_max = T(-1), ray.t_min = T(0);
  return ray;
}

// Calls emit(k) for the samples k_begin <= k < k_end of the ray, front to back, at most limit times and as
// long as it returns true; returns their number. Any cut of the lattice into ranges gives the same samples.
template <class T, class Emit>
HOST_DEVICE int64_t walk_ray(const LatticeRay<T>& ray, const OccupancyWords& occupancy, T k_begin, T k_end,
                             int64_t limit, Emit emit) {
  int64_t emitted = 0;
  k_end = min2(k_end, T(kMaxStepsOfRay));
  for (T k = k_begin; k < k_end && emitted < limit;) {
    const T t_mid = ray.t(k + T(0.5));
    if (!(t_mid < ray.t_max)) break;
    int64_t cell[3];
    ray.cell_at(t_mid, occupancy.cells, cell);
    const uint64_t word = occupancy.around(cell);
    if (word == 0) {
      const T t_exit = ray.leaves_block(t_mid, cell);
      // The last lattice point before the wall: testing it once more costs less than trusting the last bit.
      k = max2(k + T(1), std::floor((t_exit - ray.t_min) / ray.step - ray.jitter - T(0.5)));
      continue;
    }
    if (occupancy.holds(word, cell)) {
      if (!emit(k)) break;
      ++emitted;
    }
    k += T(1);
  }
  return emitted;
}

constexpr int64_t kRaysOfTotal = 8192;  // whose samples CUDA adds up in one block

// Arguments of the operation, shared by the CPU loop and the CUDA kernels. Legend: R rays, M = capacity.
template <class T>
struct MarchArgs {
  const T *origins, *directions;     // [R,3]
  const T *lower, *scale;            // [3]: origin and direction are (o - lower) * scale and d * scale; null: as they are
  const T* jitter;                   // [R / rays_of_jitter]
  int64_t rays_of_jitter = 1;        // side by side; see lattice()
  const T *near, *far;               // [R], or one for all if their stride is 0
  int64_t near_stride = 1, far_stride = 1;
  T step_size;                       // world units
  T contraction;                  // see LatticeRay
  const bool* occupied;           // cells
  int64_t cells[3];
  uint64_t* words;        // see OccupancyWords
  bool has_words;         // else they are scratch, to be filled
  int32_t* piece_starts;  // scratch on CUDA, [R,32]: samples of the ray before each of its pieces
  int64_t* totals;        // scratch on CUDA, [totals_count()]: samples of so many rays
  int64_t num_rays;
  int64_t* ray_offsets;   // [R+1]; counts while counting, then offsets
  int64_t capacity;       // M
  int64_t* ray_indices;   // [M]
  T *t_starts, *t_ends;   // [M]
  int64_t* overflow;      // [1]

  HOST_DEVICE OccupancyWords occupancy() const { return {words, {cells[0], cells[1], cells[2]}}; }
  int64_t totals_count() const { return (num_rays + kRaysOfTotal - 1) / kRaysOfTotal; }
  // The jitter of a ray. The lattices of rays that share one lie evenly beside each other, all shifted by it.
  HOST_DEVICE T lattice(int64_t r) const {
    if (rays_of_jitter == 1) return jitter[r];
    const Place p = place(r, rays_of_jitter);
    const T shifted = jitter[p.row] + (T(p.column) + T(0.5)) / T(rays_of_jitter);
    return shifted - std::floor(shifted) - T(0.5);
  }
  HOST_DEVICE LatticeRay<T> ray(int64_t r) const {
    T origin[3], direction[3];
    NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      origin[axis] = origins[3 * r + axis];
      direction[axis] = directions[3 * r + axis];
      if (!scale) continue;
      origin[axis] = (origin[axis] - lower[axis]) * scale[axis];
      direction[axis] *= scale[axis];
    }
    return clip_ray(origin, direction, lattice(r), near[r * near_stride], far[r * far_stride], step_size, cells,
                    contraction);
  }
};

// Fills the samples of ray r, which is `ray`, between two lattice points, from row i on.
template <class T>
HOST_DEVICE void fill_samples(const MarchArgs<T>& a, int64_t r, const LatticeRay<T>& ray, T k_begin, T k_end, int64_t i) {
  walk_ray(ray, a.occupancy(), k_begin, k_end, a.ray_offsets[r + 1] - i, [&](T k) {
    a.ray_indices[i] = r;
    a.t_starts[i] = ray.t(k);
    a.t_ends[i] = ray.t(k + T(1));
    ++i;
    return true;
  });
}

}  // namespace nerf
