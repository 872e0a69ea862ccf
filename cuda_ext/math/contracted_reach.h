// How fast a ray of a contracted grid runs through its cells (LatticeRay, contract_ray in march.h).
//
// In units of the inner box the ray is at q = o + d * direction, and lands at m(n) q / n with n = |q|, the norm of a
// cube, and m(n) = 1 + squash(n - 1, contraction); inside the box at q itself. Where |q_a| is n, the quotients q_b / n
// change by |direction_b o_a - o_b direction_a| / n^2 per unit of distance, as the cross product is the same all along a
// line, and m by at most steepest / (1 + (n - 1) / contraction)^2. Both fall with n. Distance grows by (1 + v / limit)^2
// per unit of t, v behind `leave`, from where on n is at least passes + steepest v. So what holds at the ends of a piece
// bounds all of it.
#pragma once

#include "march.h"

namespace nerf {

// For a bound, which is taken with a margin, nearly right is enough.
HOST_DEVICE double about(double numerator, double denominator) { return numerator / denominator; }
HOST_DEVICE float about(float numerator, float denominator) {
#ifdef __CUDA_ARCH__
  return __fdividef(numerator, denominator);
#else
  return numerator / denominator;
#endif
}

template <class T>
struct ContractedReach {
  T cells;                     // of the inner box from its center to a face, along its longest axis
  T slope;                     // cells per unit of t inside the inner box
  T enters, leaves;            // t between which the ray is in it
  T steepest, across;          // of the direction; the largest entry of its cross product with the origin
  T passes;                    // n at `leave`, at least
  T of_limit, of_contraction;  // one over these
};

template <class T>
HOST_DEVICE ContractedReach<T> contracted_reach(const LatticeRay<T>& ray) {
  ContractedReach<T> r = {T(0), T(0), T(0), ray.leave, T(0), T(0), T(1), T(1) / ray.limit, T(1) / ray.contraction};
  T outward = T(0);
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    const T o = ray.origin[axis], d = ray.direction[axis];
    const int next = axis == 2 ? 0 : axis + 1;
    r.cells = max2(r.cells, ray.inner(axis));
    r.slope = max2(r.slope, std::abs(d) * ray.inner(axis));
    r.across = max2(r.across, std::abs(d * ray.origin[next] - o * ray.direction[next]));
    if (std::abs(d) > r.steepest) {
      r.steepest = std::abs(d);
      outward = d > T(0) ? o : -o;
    }
    if (d != T(0)) {
      r.enters = max2(r.enters, min2((T(-1) - o) / d, (T(1) - o) / d));
      r.leaves = min2(r.leaves, max2((T(-1) - o) / d, (T(1) - o) / d));
    } else if (std::abs(o) > T(1)) {
      r.leaves = T(-1);  // never in it
    }
  }
  r.passes = max2(r.passes, outward + ray.leave * r.steepest);
  return r;
}

// How far in the world t is behind `leave`; as unsquash does it.
template <class T>
HOST_DEVICE T unsquashed(const LatticeRay<T>& ray, T t) {
  const T behind = max2(t - ray.leave, T(0));
  return about(behind, T(1) - min2(about(behind, ray.limit), T(1) - T(1) / T(1 << 22)));
}

// Cells per unit of t along any axis, between first and last: at most this many.
template <class T>
HOST_DEVICE T fastest(const LatticeRay<T>& ray, const ContractedReach<T>& r, T first, T last) {
  if (first >= r.enters && last <= r.leaves) return r.slope;
  const T growth = T(1) + unsquashed(ray, last) * r.of_limit;
  const T norm = first >= ray.leave ? r.passes + r.steepest * unsquashed(ray, first) : T(1);
  const T slower = T(1) + (norm - T(1)) * r.of_contraction;
  const T along = about(r.steepest, slower * slower);
  return r.cells * growth * growth * (along + about((T(1) + ray.contraction) * r.across, norm * norm));
}

}  // namespace nerf
