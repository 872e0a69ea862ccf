// How fast a ray runs through a contracted grid (cuda_ext/math/contracted_reach.h), beside its positions.
#include "contracted_reach.h"
#include "expect.h"

namespace {

using namespace nerf;

template <class T>
LatticeRay<T> contracted_ray(const int64_t cells[3], T contraction, double away) {
  T origin[3], direction[3];
  double length = 0;
  for (int axis = 0; axis < 3; ++axis) {
    origin[axis] = T(cells[axis] / 2.0 * (1 + number(-away, away)));
    direction[axis] = T(number(-1, 1));
    length += double(direction[axis]) * direction[axis];
  }
  if (number() < 0.2) direction[int(number(0, 3))] = T(0);
  for (T& d : direction) d /= T(std::sqrt(length));
  return clip_ray(origin, direction, T(0), T(0), T(1e30), T(0.5), cells, contraction);
}

// Over pieces of eight points, of which the marching kernel asks from their middle.
template <class T>
void no_point_is_farther_than_said() {
  const int64_t grids[][3] = {{320, 320, 320}, {368, 315, 286}, {40, 90, 400}};
  const T slack = sizeof(T) == 4 ? T(0.02) : T(1e-6);
  int pieces = 0, near = 0, straight = 0;
  for (const auto& cells : grids)
    for (const double away : {0.3, 0.9, 4.0, 60.0})
      for (const T contraction : {T(0.5), T(1), T(2)})
        for (int trial = 0; trial < 30; ++trial) {
          const auto ray = contracted_ray<T>(cells, contraction, away);
          if (!(ray.t_min < ray.t_max)) continue;
          const auto reach = contracted_reach(ray);
          const T points = ray.length(), half = T(3.5);
          for (T first = T(0); first < points; first += T(8)) {
            const T middle = first + T(4), low = ray.t(middle - half), high = ray.t(middle + half);
            const T bound = fastest(ray, reach, low, high) * half * ray.step;
            T at[3], point[3];
            ray.position(ray.t(middle), at);
            if (away < 0.5) {  // a camera among what it sees
              ++pieces;
              near += bound < T(3.99);
              straight += low >= reach.enters && high <= reach.leaves;
            }
            for (int i = 0; i <= 28; ++i) {
              ray.position(low + (high - low) * T(i) / T(28), point);
              for (int axis = 0; axis < 3; ++axis)
                if (!(std::abs(point[axis] - at[axis]) <= bound + slack)) {
                  expect_near(point[axis], at[axis], bound, "a point is as near to the middle as is said");
                  return;
                }
            }
          }
        }
  expect(near > pieces * 3 / 4, "most pieces are known to be short");
  expect(straight > pieces / 4 && straight < near, "some are in the inner box, others behind it");
}

void a_ray_through_the_box_is_straight_there() {
  const int64_t cells[3] = {100, 100, 100};
  const double origin[3] = {50, 50, 5}, direction[3] = {0, 0, 1};
  const auto ray = clip_ray(origin, direction, 0.0, 0.0, 1e30, 0.5, cells, 1.0);  // the box: cells 25 to 75
  const auto reach = contracted_reach(ray);
  expect_near(reach.slope, 1, 1e-12, "a cell per unit of t");
  const double enters = (25 - 5) / 1.0, leaves = 75 - 5;
  expect_near(reach.enters, enters, 1e-9, "where it enters the box");
  expect_near(reach.leaves, leaves, 1e-9, "where it leaves it");
  expect_near(fastest(ray, reach, 30.0, 34.0), 1, 1e-12, "its speed in the box");
  expect(fastest(ray, reach, 10.0, 14.0) >= 1, "before the box");
  expect(fastest(ray, reach, 71.0, 74.0) >= 1, "behind it");
  const double beside[3] = {5, 50, 5};
  const auto passing = clip_ray(beside, direction, 0.0, 0.0, 1e30, 0.5, cells, 1.0);
  const auto there = contracted_reach(passing);
  expect(there.leaves < there.enters, "a ray beside the box");
  expect(fastest(passing, there, 40.0, 44.0) > there.slope, "it is bent");
}

}  // namespace

int main() {
  no_point_is_farther_than_said<float>();
  no_point_is_farther_than_said<double>();
  a_ray_through_the_box_is_straight_there();
  return failures ? 1 : 0;
}
