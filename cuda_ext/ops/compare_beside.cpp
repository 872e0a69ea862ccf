// compare_beside and its backward.
#include "../portable/compare_beside.h"

#include "image_sizes.h"
#include "operation.h"

namespace nerf {
namespace {

using OptionalTensor = std::optional<Tensor>;

// The arguments, dense: copies live as long as this.
struct BesideInputs {
  Tensor depth, opacity, origins, directions, pixels, images, sizes, first_pixels, beside, c2w, intrinsics;
  OptionalTensor models, coefficients, reach;
  int64_t stride;

  BesideInputs(const Tensor& z, const Tensor& a, const Tensor& o, const Tensor& d, const Tensor& p,
               const Tensor& photos, const Tensor& s, const Tensor& f, const Tensor& b, const Tensor& pose,
               const Tensor& k, const OptionalTensor& m, const OptionalTensor& l, const OptionalTensor& r,
               int64_t apart)
      : stride(apart) {
    check_floating("depth", z);
    const ScalarType dtype = z.scalar_type();
    check_argument("depth", z, z, dtype, {kAny});
    const int64_t count = z.size(0);
    check_argument("opacity", a, z, dtype, {count});
    check_argument("origins", o, z, dtype, {count, 3});
    check_argument("directions", d, z, dtype, {count, 3});
    check_argument("pixels", p, z, ScalarType::Long, {count});
    check_argument("images", photos, z, ScalarType::Byte, {kAny, kAny});
    if (photos.size(1) != 3 && photos.size(1) != 4)
      reject("images has shape " + shape_name(photos.sizes()) + ", expected [*,3] or [*,4]");
    check_argument("sizes", s, z, ScalarType::Long, {kAny, 2});
    const int64_t cameras = s.size(0);
    check_argument("first_pixels", f, z, ScalarType::Long, {cameras + 1});
    check_argument("beside", b, z, ScalarType::Long, {cameras, kAny});
    if (b.size(1) < 1)
      reject("beside has shape " + shape_name(b.sizes()) + ", expected a view beside each image, or -1");
    check_argument("c2w", pose, z, dtype, {cameras, 3, 4});
    check_argument("intrinsics", k, z, dtype, {cameras, 4});
    if (stride < 1 || stride > kLongestStride)
      reject("stride is " + std::to_string(stride) + ", expected 1 to " + std::to_string(kLongestStride));
    check_together("lenses", {{"lens_models", &m}, {"lens_coefficients", &l}, {"lens_reach", &r}});
    depth = dense(z), opacity = dense(a), origins = dense(o), directions = dense(d), pixels = dense(p);
    images = dense(photos), sizes = dense(s), first_pixels = dense(f), beside = dense(b), c2w = dense(pose);
    intrinsics = dense(k);
    if (m) {
      check_argument("lens_models", *m, z, ScalarType::Long, {cameras});
      check_argument("lens_coefficients", *l, z, dtype, {cameras, kCoefficients});
      check_argument("lens_reach", *r, z, dtype, {cameras});
      models = dense(*m), coefficients = dense(*l), reach = dense(*r);
      check_indices("lens_models", *models, kPanorama + 1);
    }
    if (!images.is_cuda()) {
      const int64_t all = check_images(sizes, first_pixels);
      if (all != images.size(0))
        reject("images has shape " + shape_name(images.sizes()) + ", expected " +
               shape_name(Shape{all, images.size(1)}) + ", the pixels of sizes");
    }
    check_indices("pixels", pixels, images.size(0));
    check_indices("beside", beside, cameras, -1);
  }

  template <class T>
  CompareBesideArgs<T> arguments() const {
    CompareBesideArgs<T> a = {};
    a.photos = {data<uint8_t>(images),
                data<int64_t>(sizes),
                data<int64_t>(first_pixels),
                images.size(0),
                images.size(1),
                sizes.size(0),
                stride};
    a.cameras.c2w = data<T>(c2w);
    a.cameras.intrinsics = data<T>(intrinsics);
    if (models) {
      a.cameras.lens_models = data<int64_t>(*models);
      a.cameras.lens_coefficients = data<T>(*coefficients);
      a.cameras.lens_reach = data<T>(*reach);
    }
    a.beside = data<int64_t>(beside);
    a.pixels = data<int64_t>(pixels);
    a.origins = data<T>(origins);
    a.directions = data<T>(directions);
    a.depth = data<T>(depth);
    a.opacity = data<T>(opacity);
    a.views = beside.size(1);
    a.num_pixels = pixels.size(0);
    return a;
  }
};

}  // namespace

Tensor compare_beside(const Tensor& depth, const Tensor& opacity, const Tensor& origins, const Tensor& directions,
                      const Tensor& pixels, const Tensor& images, const Tensor& sizes, const Tensor& first_pixels,
                      const Tensor& beside, const Tensor& c2w, const Tensor& intrinsics,
                      const OptionalTensor& lens_models, const OptionalTensor& lens_coefficients,
                      const OptionalTensor& lens_reach, int64_t stride) {
  const BesideInputs in(depth, opacity, origins, directions, pixels, images, sizes, first_pixels, beside, c2w,
                        intrinsics, lens_models, lens_coefficients, lens_reach, stride);
  Tensor error = empty(in.depth, {in.depth.size(0)}, in.depth.scalar_type());
  with_scalar(in.depth, [&](auto scalar) {
    using T = decltype(scalar);
    CompareBesideArgs<T> a = in.arguments<T>();
    a.error = data<T>(error);
    NERF_CALL(in.depth, compare_beside, a);
  });
  return error;
}

std::tuple<Tensor, Tensor> compare_beside_backward(const Tensor& grad_error, const Tensor& depth, const Tensor& opacity,
                                                   const Tensor& origins, const Tensor& directions,
                                                   const Tensor& pixels, const Tensor& images, const Tensor& sizes,
                                                   const Tensor& first_pixels, const Tensor& beside, const Tensor& c2w,
                                                   const Tensor& intrinsics, const OptionalTensor& lens_models,
                                                   const OptionalTensor& lens_coefficients,
                                                   const OptionalTensor& lens_reach, int64_t stride) {
  const BesideInputs in(depth, opacity, origins, directions, pixels, images, sizes, first_pixels, beside, c2w,
                        intrinsics, lens_models, lens_coefficients, lens_reach, stride);
  const ScalarType dtype = in.depth.scalar_type();
  check_argument("grad_error", grad_error, depth, dtype, {in.depth.size(0)});
  const Tensor g = dense(grad_error);
  Tensor grad_depth = empty(in.depth, {in.depth.size(0)}, dtype),
         grad_opacity = empty(in.depth, {in.depth.size(0)}, dtype);
  with_scalar(in.depth, [&](auto scalar) {
    using T = decltype(scalar);
    CompareBesideArgs<T> a = in.arguments<T>();
    a.grad_error = data<T>(g);
    a.grad_depth = data<T>(grad_depth);
    a.grad_opacity = data<T>(grad_opacity);
    NERF_CALL(in.depth, compare_beside_backward, a);
  });
  return {grad_depth, grad_opacity};
}

NERF_OPERATION(
    compare_beside,
    "(Tensor depth, Tensor opacity, Tensor origins, Tensor directions, Tensor pixels, Tensor images, Tensor sizes, "
    "Tensor first_pixels, Tensor beside, Tensor c2w, Tensor intrinsics, Tensor? lens_models, Tensor? "
    "lens_coefficients, Tensor? lens_reach, int stride) -> Tensor")
NERF_OPERATION(
    compare_beside_backward,
    "(Tensor grad_error, Tensor depth, Tensor opacity, Tensor origins, Tensor directions, Tensor pixels, Tensor "
    "images, Tensor sizes, Tensor first_pixels, Tensor beside, Tensor c2w, Tensor intrinsics, Tensor? lens_models, "
    "Tensor? lens_coefficients, Tensor? lens_reach, int stride) -> (Tensor grad_depth, Tensor grad_opacity)")

}  // namespace nerf
