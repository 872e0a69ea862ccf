// camera_rays: the rays through the pixels of one batch or picture.
#include "../portable/camera_rays.h"

#include "operation.h"

namespace nerf {

std::tuple<Tensor, Tensor> camera_rays(const Tensor& c2w, const Tensor& intrinsics, const Tensor& pixel_indices,
                                       int64_t width, int64_t height, const Tensor& subpixels) {
  check_floating("c2w", c2w);
  const ScalarType dtype = c2w.scalar_type();
  check_argument("c2w", c2w, c2w, dtype, {kAny, 3, 4});
  check_argument("intrinsics", intrinsics, c2w, dtype, {c2w.size(0), 4});
  check_argument("pixel_indices", pixel_indices, c2w, ScalarType::Long, {kAny});
  check_argument("subpixels", subpixels, c2w, dtype, {kAny, 2});
  if (width < 1) reject("width is " + std::to_string(width) + ", expected at least 1");
  if (height < 1) reject("height is " + std::to_string(height) + ", expected at least 1");
  const Tensor poses = dense(c2w), lenses = dense(intrinsics), indices = dense(pixel_indices),
               shifts = dense(subpixels);
  check_indices("pixel_indices", indices, product("width", {width, height, poses.size(0)}));
  const int64_t num_rays = product("pixel_indices", {indices.size(0), shifts.size(0)});
  Tensor origins = empty(poses, {num_rays, 3}, dtype), directions = empty(poses, {num_rays, 3}, dtype);
  with_scalar(poses, [&](auto scalar) {
    using T = decltype(scalar);
    CameraRaysArgs<T> a = {};
    a.c2w = data<T>(poses);
    a.intrinsics = data<T>(lenses);
    a.num_cameras = poses.size(0);
    a.width = width;
    a.height = height;
    a.pixel_indices = data<int64_t>(indices);
    a.num_pixels = indices.size(0);
    a.subpixels = data<T>(shifts);
    a.rays_per_pixel = shifts.size(0);
    a.origins = data<T>(origins);
    a.directions = data<T>(directions);
    NERF_CALL(poses, camera_rays, a);
  });
  return {origins, directions};
}

NERF_OPERATION(camera_rays,
               "(Tensor c2w, Tensor intrinsics, Tensor pixel_indices, int width, int height, Tensor subpixels) -> "
               "(Tensor origins, Tensor directions)")

}  // namespace nerf
