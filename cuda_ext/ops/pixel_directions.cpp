// pixel_directions: of pixels that several rays see.
#include "../portable/pixel_directions.h"

#include "operation.h"

namespace nerf {

Tensor pixel_directions(const Tensor& directions, int64_t rays_per_pixel) {
  check_floating("directions", directions);
  const ScalarType dtype = directions.scalar_type();
  check_argument("directions", directions, directions, dtype, {kAny, 3});
  const int64_t rays = directions.size(0);
  if (rays_per_pixel < 1 || rays % rays_per_pixel != 0)
    reject("rays_per_pixel is " + std::to_string(rays_per_pixel) + ", expected a divisor of " + std::to_string(rays) +
           ", the number of rays");
  const Tensor d = dense(directions);
  Tensor out = empty(d, {rays / rays_per_pixel, 3}, dtype);
  with_scalar(d, [&](auto scalar) {
    using T = decltype(scalar);
    PixelDirectionsArgs<T> a = {};
    a.directions = data<T>(d);
    a.pixels = rays / rays_per_pixel;
    a.rays_per_pixel = rays_per_pixel;
    a.out = data<T>(out);
    NERF_CALL(d, pixel_directions, a);
  });
  return out;
}

NERF_OPERATION(pixel_directions, "(Tensor directions, int rays_per_pixel) -> Tensor")

}  // namespace nerf
