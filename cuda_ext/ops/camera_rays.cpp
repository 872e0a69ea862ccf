// camera_rays: the rays through the pixels of one batch or picture.
#include "../portable/camera_rays.h"

#include "image_sizes.h"
#include "operation.h"

namespace nerf {
namespace {

using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kMostIterations = 1000;

// The arguments, dense: copies live as long as this.
struct CameraInputs {
  Tensor c2w, intrinsics, pixels, subpixels;
  int64_t width, height, iterations;
  OptionalTensor sizes, first_pixels, models, coefficients, reach, rim;

  CameraInputs(const Tensor& pose, const Tensor& k, const Tensor& p, int64_t w, int64_t h, const Tensor& shifts,
               const OptionalTensor& s, const OptionalTensor& f, const OptionalTensor& m, const OptionalTensor& l,
               const OptionalTensor& r, const OptionalTensor& end, int64_t times)
      : width(w), height(h), iterations(times) {
    check_floating("c2w", pose);
    const ScalarType dtype = pose.scalar_type();
    check_argument("c2w", pose, pose, dtype, {kAny, 3, 4});
    const int64_t cameras = pose.size(0);
    check_argument("intrinsics", k, pose, dtype, {cameras, 4});
    check_argument("pixel_indices", p, pose, ScalarType::Long, {kAny});
    check_argument("subpixels", shifts, pose, dtype, {kAny, 2});
    check_together("images", {{"sizes", &s}, {"first_pixels", &f}});
    check_together("lenses", {{"lens_models", &m}, {"lens_coefficients", &l}, {"lens_reach", &r}, {"lens_rim", &end}});
    c2w = dense(pose), intrinsics = dense(k), pixels = dense(p), subpixels = dense(shifts);
    if (m) {
      check_argument("lens_models", *m, pose, ScalarType::Long, {cameras});
      check_argument("lens_coefficients", *l, pose, dtype, {cameras, kCoefficients});
      check_argument("lens_reach", *r, pose, dtype, {cameras});
      check_argument("lens_rim", *end, pose, dtype, {cameras});
      if (iterations < 1 || iterations > kMostIterations)
        reject("iterations is " + std::to_string(iterations) + ", expected 1 to " + std::to_string(kMostIterations));
      models = dense(*m), coefficients = dense(*l), reach = dense(*r), rim = dense(*end);
      check_indices("lens_models", *models, kPanorama + 1);
    }
    if (s) {
      check_argument("sizes", *s, pose, ScalarType::Long, {cameras, 2});
      check_argument("first_pixels", *f, pose, ScalarType::Long, {cameras + 1});
      sizes = dense(*s), first_pixels = dense(*f);
    } else {
      if (width < 1) reject("width is " + std::to_string(width) + ", expected at least 1");
      if (height < 1) reject("height is " + std::to_string(height) + ", expected at least 1");
    }
    const bool counted = sizes && !pixels.is_cuda();
    const int64_t all = sizes ? (counted ? check_images(*sizes, *first_pixels) : INT64_MAX)
                              : product("width", {width, height, cameras});
    check_indices("pixel_indices", pixels, all);
  }

  template <class T>
  CameraRaysArgs<T> arguments() const {
    CameraRaysArgs<T> a = {};
    a.c2w = data<T>(c2w);
    a.intrinsics = data<T>(intrinsics);
    a.num_cameras = c2w.size(0);
    a.width = width;
    a.height = height;
    if (sizes) {
      a.sizes = data<int64_t>(*sizes);
      a.first_pixels = data<int64_t>(*first_pixels);
    }
    if (models) {
      a.lens_models = data<int64_t>(*models);
      a.lens_coefficients = data<T>(*coefficients);
      a.lens_reach = data<T>(*reach);
      a.lens_rim = data<T>(*rim);
      a.iterations = iterations;
    }
    a.pixel_indices = data<int64_t>(pixels);
    a.num_pixels = pixels.size(0);
    a.subpixels = data<T>(subpixels);
    a.rays_per_pixel = subpixels.size(0);
    return a;
  }
};

}  // namespace

std::tuple<Tensor, Tensor> camera_rays(const Tensor& c2w, const Tensor& intrinsics, const Tensor& pixel_indices,
                                       int64_t width, int64_t height, const Tensor& subpixels,
                                       const OptionalTensor& sizes, const OptionalTensor& first_pixels,
                                       const OptionalTensor& lens_models, const OptionalTensor& lens_coefficients,
                                       const OptionalTensor& lens_reach, const OptionalTensor& lens_rim,
                                       int64_t iterations) {
  const CameraInputs in(c2w, intrinsics, pixel_indices, width, height, subpixels, sizes, first_pixels, lens_models,
                        lens_coefficients, lens_reach, lens_rim, iterations);
  const int64_t num_rays = product("pixel_indices", {in.pixels.size(0), in.subpixels.size(0)});
  const ScalarType dtype = in.c2w.scalar_type();
  Tensor origins = empty(in.c2w, {num_rays, 3}, dtype), directions = empty(in.c2w, {num_rays, 3}, dtype);
  with_scalar(in.c2w, [&](auto scalar) {
    using T = decltype(scalar);
    CameraRaysArgs<T> a = in.arguments<T>();
    a.origins = data<T>(origins);
    a.directions = data<T>(directions);
    NERF_CALL(in.c2w, camera_rays, a);
  });
  return {origins, directions};
}

NERF_OPERATION(camera_rays,
               "(Tensor c2w, Tensor intrinsics, Tensor pixel_indices, int width, int height, Tensor subpixels, "
               "Tensor? sizes=None, Tensor? first_pixels=None, Tensor? lens_models=None, Tensor? "
               "lens_coefficients=None, Tensor? lens_reach=None, Tensor? lens_rim=None, int iterations=10) -> "
               "(Tensor origins, Tensor directions)")

}  // namespace nerf
