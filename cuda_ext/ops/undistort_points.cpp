// undistort_points: directions of pixels that are seen through lenses.
#include "../portable/undistort_points.h"

#include "operation.h"

namespace nerf {

constexpr int64_t kMostIterations = 1000;

Tensor undistort_points(const Tensor& points, const Tensor& image, const Tensor& models, const Tensor& coefficients,
                        const Tensor& reach, const Tensor& rim, int64_t iterations) {
  check_floating("points", points);
  const ScalarType dtype = points.scalar_type();
  check_argument("points", points, points, dtype, {kAny, 2});
  check_argument("image", image, points, ScalarType::Long, {points.size(0)});
  check_argument("models", models, points, ScalarType::Long, {kAny});
  const int64_t images = models.size(0);
  check_argument("coefficients", coefficients, points, dtype, {images, kCoefficients});
  check_argument("reach", reach, points, dtype, {images});
  check_argument("rim", rim, points, dtype, {images});
  if (iterations < 1 || iterations > kMostIterations)
    reject("iterations is " + std::to_string(iterations) + ", expected 1 to " + std::to_string(kMostIterations));
  const Tensor p = dense(points), i = dense(image), m = dense(models), k = dense(coefficients), r = dense(reach),
               end = dense(rim);
  check_indices("image", i, images);
  check_indices("models", m, kPanorama + 1);
  Tensor directions = empty(p, {p.size(0), 3}, dtype);
  with_scalar(p, [&](auto scalar) {
    using T = decltype(scalar);
    UndistortPointsArgs<T> a = {};
    a.points = data<T>(p);
    a.image = data<int64_t>(i);
    a.models = data<int64_t>(m);
    a.coefficients = data<T>(k);
    a.reach = data<T>(r);
    a.rim = data<T>(end);
    a.count = p.size(0);
    a.images = images;
    a.iterations = iterations;
    a.directions = data<T>(directions);
    NERF_CALL(p, undistort_points, a);
  });
  return directions;
}

NERF_OPERATION(
    undistort_points,
    "(Tensor points, Tensor image, Tensor models, Tensor coefficients, Tensor reach, Tensor rim, int iterations) -> "
    "Tensor")

}  // namespace nerf
