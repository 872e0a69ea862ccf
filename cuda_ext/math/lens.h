// From a point in front of a lens to where it is in the picture, with the derivative along, and back by Newton's method: the
// models of nerf/ops/lens.py, whose formulas and limits these are.
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

  // The direction, of any length, of the point (u, v) of the picture. rim: distorted radius at the reach.
  HOST_DEVICE void undistort(T u, T v, T rim, int64_t iterations, T direction[3]) const {
    const T radius = std::sqrt(max2(u * u + v * v, T(kSmallest * kSmallest))), beyond = max2(radius / rim, T(1));
    if (model == kFisheye) {
      const T theta = solve_fisheye(radius / beyond, iterations) * beyond, scale = std::sin(theta) / radius;
      direction[0] = u * scale, direction[1] = v * scale, direction[2] = std::cos(theta);
    } else if (model == kPanorama) {
      const T level = std::cos(v);
      direction[0] = std::sin(u) * level, direction[1] = std::sin(v), direction[2] = std::cos(u) * level;
    } else {
      T x = u / beyond, y = v / beyond;
      solve_perspective(x, y, iterations);
      direction[0] = x * beyond, direction[1] = y * beyond, direction[2] = T(1);
    }
  }

 private:
  // From a distorted point to the one that is distorted to it.
  HOST_DEVICE void solve_perspective(T& x, T& y, int64_t iterations) const {
    const T bent_x = x, bent_y = y, p1 = T(2) * k[2], p2 = T(2) * k[3];
    for (int64_t i = 0; i < iterations; ++i) {
      const T r2 = x * x + y * y;
      const T shared = T(1) + r2 * (k[0] + r2 * (k[1] + r2 * (k[4] + r2 * k[5]))) + p1 * y + p2 * x;
      const T error_x = x * shared + k[3] * r2 - bent_x, error_y = y * shared + k[2] * r2 - bent_y;
      const T slope = T(2) * k[0] + r2 * (T(4) * k[1] + r2 * (T(6) * k[4] + r2 * (T(8) * k[5])));
      const T xx = shared + x * (p2 + x * slope + p2), yy = shared + y * (p1 + y * slope + p1);
      const T xy = p2 * y + x * (p1 + y * slope), scale = T(1) / (xx * yy - xy * xy);
      const T by_x = scale * (yy * error_x - xy * error_y), by_y = scale * (xx * error_y - xy * error_x);
      x -= by_x, y -= by_y;
    }
  }

  // The angle, up to the reach, that is seen at this radius.
  HOST_DEVICE T solve_fisheye(T radius, int64_t iterations) const {
    T theta = radius;
    for (int64_t i = 0; i < iterations; ++i) {
      theta = min2(max2(theta, T(0)), reach);  // beyond, the polynomial may turn back
      const T t2 = theta * theta;
      const T found = theta * (T(1) + t2 * (k[0] + t2 * (k[1] + t2 * (k[2] + t2 * k[3]))));
      const T slope = T(1) + t2 * (T(3) * k[0] + t2 * (T(5) * k[1] + t2 * (T(7) * k[2] + t2 * (T(9) * k[3]))));
      theta -= (found - radius) / slope;
    }
    return theta;
  }

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
