// world_depth and its backward.
#include "../portable/world_depth.h"

#include "operation.h"

namespace nerf {
namespace {

// The arguments, dense: copies live as long as this.
struct DepthInputs {
  Tensor depth, opacity, origins, directions, center, half;
  double contraction;

  DepthInputs(const Tensor& d, const Tensor& o, const Tensor& from, const Tensor& to, const Tensor& c, const Tensor& h,
              double thickness)
      : contraction(thickness) {
    check_floating("depth", d);
    const ScalarType dtype = d.scalar_type();
    check_argument("depth", d, d, dtype, {kAny});
    const int64_t rays = d.size(0);
    check_argument("opacity", o, d, dtype, {rays});
    check_argument("origins", from, d, dtype, {rays, 3});
    check_argument("directions", to, d, dtype, {rays, 3});
    check_argument("center", c, d, dtype, {3});
    check_argument("half", h, d, dtype, {3});
    depth = dense(d), opacity = dense(o), origins = dense(from), directions = dense(to), center = dense(c),
    half = dense(h);
  }

  template <class T>
  WorldDepthArgs<T> arguments() const {
    WorldDepthArgs<T> a = {};
    a.depth = data<T>(depth);
    a.opacity = data<T>(opacity);
    a.origins = data<T>(origins);
    a.directions = data<T>(directions);
    a.center = data<T>(center);
    a.half = data<T>(half);
    a.contraction = T(contraction);
    a.rays = depth.size(0);
    return a;
  }
};

}  // namespace

Tensor world_depth(const Tensor& depth, const Tensor& opacity, const Tensor& origins, const Tensor& directions,
                   const Tensor& center, const Tensor& half, double contraction) {
  const DepthInputs in(depth, opacity, origins, directions, center, half, contraction);
  Tensor out = empty(in.depth, {in.depth.size(0)}, in.depth.scalar_type());
  with_scalar(in.depth, [&](auto scalar) {
    using T = decltype(scalar);
    WorldDepthArgs<T> a = in.arguments<T>();
    a.out = data<T>(out);
    NERF_CALL(in.depth, world_depth, a);
  });
  return out;
}

std::tuple<Tensor, Tensor> world_depth_backward(const Tensor& grad_out, const Tensor& depth, const Tensor& opacity,
                                                const Tensor& origins, const Tensor& directions, const Tensor& center,
                                                const Tensor& half, double contraction) {
  const DepthInputs in(depth, opacity, origins, directions, center, half, contraction);
  check_argument("grad_out", grad_out, depth, depth.scalar_type(), {in.depth.size(0)});
  const Tensor g = dense(grad_out);
  Tensor grad_depth = empty(in.depth, {in.depth.size(0)}, in.depth.scalar_type());
  Tensor grad_opacity = empty(in.depth, {in.depth.size(0)}, in.depth.scalar_type());
  with_scalar(in.depth, [&](auto scalar) {
    using T = decltype(scalar);
    WorldDepthArgs<T> a = in.arguments<T>();
    a.grad_out = data<T>(g);
    a.grad_depth = data<T>(grad_depth);
    a.grad_opacity = data<T>(grad_opacity);
    NERF_CALL(in.depth, world_depth_backward, a);
  });
  return {grad_depth, grad_opacity};
}

NERF_OPERATION(
    world_depth,
    "(Tensor depth, Tensor opacity, Tensor origins, Tensor directions, Tensor center, Tensor half, float contraction) "
    "-> Tensor")
NERF_OPERATION(
    world_depth_backward,
    "(Tensor grad_out, Tensor depth, Tensor opacity, Tensor origins, Tensor directions, Tensor center, Tensor half, "
    "float contraction) -> (Tensor grad_depth, Tensor grad_opacity)")

}  // namespace nerf
