// From a point in front of a lens to where it is in the picture, with the derivative along: the models of
// nerf/ops/lens.py, whose formulas and limits these are.
//
// Axes as there: x right, y down, z forward.
#pragma once

#include "dual.h"

namespace nerf {

constexpr int kCoefficients = 6;
enum LensModel : int64_t { kPerspective = 0, kFisheye = 1, kPanorama = 2 };
constexpr double kLeastAhead = 1e-9, kSmallest = 1e-12;

template <class T>
struct Lens {
  int64_t model;
  const T* k;  // [6]
  T reach;

  // x and y of the picture in focal lengths from the principal point.
  HOST_DEVICE void distort(const Dual<T> point[3], Dual<T>& u, Dual<T>& v) const {
    if (model == kFisheye) fisheye(point, u, v);
    else if (model == kPanorama) panorama(point, u, v);
    else perspective(point, u, v);
  }

 private:
  HOST_DEVICE void perspective(const Dual<T> point[3], Dual<T>& u, Dual<T>& v) const {
    const T sideways = std::sqrt(point[0].value * point[0].value + point[1].value * point[1].value);
    const Dual<T> ahead = point[2].value > T(0) ? larger(point[2], Dual<T>(T(kLeastAhead) * sideways)) : Dual<T>(T(1));
    Dual<T> x = point[0] / ahead, y = point[1] / ahead;
    const Dual<T> square = larger(x * x + y * y, Dual<T>(T(kSmallest)));
    Dual<T> inside(T(1));  // what is beyond the reach continues linearly
    if (reach * reach < square.value) inside = square_root(Dual<T>(reach * reach) / square);
    x = inside * x, y = inside * y;
    const Dual<T> r2 = x * x + y * y, p1(k[2]), p2(k[3]), two(T(2));
    const Dual<T> radial =
        Dual<T>(T(1)) + r2 * (Dual<T>(k[0]) + r2 * (Dual<T>(k[1]) + r2 * (Dual<T>(k[4]) + r2 * Dual<T>(k[5]))));
    const Dual<T> shared = radial + two * p1 * y + two * p2 * x;
    u = (x * shared + p2 * r2) / inside;
    v = (y * shared + p1 * r2) / inside;
  }

  HOST_DEVICE void fisheye(const Dual<T> point[3], Dual<T>& u, Dual<T>& v) const {
    const Dual<T> square = larger(point[0] * point[0] + point[1] * point[1], Dual<T>(T(kSmallest * kSmallest)));
    const Dual<T> radius = square_root(square), theta = angle_of(radius, point[2]);
    const Dual<T> used = smaller(theta, Dual<T>(reach)), t2 = used * used;
    const Dual<T> ratio =
        Dual<T>(T(1)) + t2 * (Dual<T>(k[0]) + t2 * (Dual<T>(k[1]) + t2 * (Dual<T>(k[2]) + t2 * Dual<T>(k[3]))));
    const Dual<T> scale = ratio * theta / radius;
    u = point[0] * scale;
    v = point[1] * scale;
  }

  HOST_DEVICE void panorama(const Dual<T> point[3], Dual<T>& u, Dual<T>& v) const {
    u = angle_of(point[0], point[2]);
    if (u.value >= T(3.14159265358979323846)) u.value = -u.value;  // straight behind is on the left edge
    const Dual<T> level = larger(point[0] * point[0] + point[2] * point[2], Dual<T>(T(kSmallest * kSmallest)));
    v = angle_of(point[1], square_root(level));
  }
};

}  // namespace nerf
