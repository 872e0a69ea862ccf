// interpolate_cells and its backward.
#include "../portable/cells.h"

#include "operation.h"

namespace nerf {
namespace {

void check_cells(const Tensor& feats, const Tensor& points) {
  check_floating("feats", feats);
  check_argument("feats", feats, feats, feats.scalar_type(), {kAny, 8, kAny});
  check_channels("feats", feats.size(2));
  check_argument("points", points, feats, feats.scalar_type(), {feats.size(0), 3});
}

template <class T>
CellsArgs<T> cells_arguments(const Tensor& feats, const Tensor& points) {
  CellsArgs<T> a = {};
  a.feats = data<T>(feats);
  a.points = data<T>(points);
  a.num_points = feats.size(0);
  a.channels = feats.size(2);
  return a;
}

}  // namespace

Tensor interpolate_cells(const Tensor& feats, const Tensor& points) {
  check_cells(feats, points);
  const Tensor f = dense(feats), x = dense(points);
  Tensor out = empty(f, {f.size(0), f.size(2)}, f.scalar_type());
  with_scalar(f, [&](auto scalar) {
    using T = decltype(scalar);
    CellsArgs<T> a = cells_arguments<T>(f, x);
    a.out = data<T>(out);
    NERF_CALL(f, cells, a);
  });
  return out;
}

std::tuple<Tensor, Tensor> interpolate_cells_backward(const Tensor& grad_out, const Tensor& feats, const Tensor& points,
                                                      bool needs_feats, bool needs_points) {
  check_cells(feats, points);
  check_argument("grad_out", grad_out, feats, feats.scalar_type(), {feats.size(0), feats.size(2)});
  const Tensor go = dense(grad_out), f = dense(feats), x = dense(points);
  const Shape feats_shape = {f.size(0), 8, f.size(2)};
  Tensor grad_feats = needs_feats ? empty(f, feats_shape, f.scalar_type()) : no_gradient(f);
  Tensor grad_points = needs_points ? empty(f, {f.size(0), 3}, f.scalar_type()) : no_gradient(f);
  with_scalar(f, [&](auto scalar) {
    using T = decltype(scalar);
    CellsArgs<T> a = cells_arguments<T>(f, x);
    a.grad_out = data<T>(go);
    a.grad_feats = needs_feats ? data<T>(grad_feats) : nullptr;
    a.grad_points = needs_points ? data<T>(grad_points) : nullptr;
    NERF_CALL(f, cells_backward, a);
  });
  return {grad_feats, grad_points};
}

NERF_OPERATION(interpolate_cells, "(Tensor feats, Tensor points) -> Tensor")
NERF_OPERATION(interpolate_cells_backward,
               "(Tensor grad_out, Tensor feats, Tensor points, bool needs_feats, bool needs_points) -> (Tensor "
               "grad_feats, Tensor grad_points)")

}  // namespace nerf
