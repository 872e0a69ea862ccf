// total_variation_grad: adds the gradient of the grid's total variation to an existing gradient.
#include "../portable/total_variation.h"

#include "operation.h"

namespace nerf {

void total_variation_grad(const Tensor& grad, const Tensor& grid, double weight, bool touched_only,
                          const std::optional<Tensor>& rows) {
  check_floating("grad", grad);
  check_in_place("grad", grad);
  check_argument("grad", grad, grad, grad.scalar_type(), {kAny, kAny, kAny, kAny});
  check_argument("grid", grid, grad, grad.scalar_type(), {grad.size(0), grad.size(1), grad.size(2), grad.size(3)});
  check_channels("grad", grad.size(3));
  if (rows) check_argument("rows", *rows, grad, ScalarType::Long, {kAny});
  const Tensor g = dense(grid), visited = rows ? dense(*rows) : no_gradient(grad);
  check_apart({{"grad", &grad}}, {{"grid", &g}, {"rows", &visited}});
  const int64_t vertices = product("grad", {grad.size(0), grad.size(1), grad.size(2)});
  if (rows) check_indices("rows", visited, vertices);
  if (grad.numel() == 0 || (rows && rows->numel() == 0)) return;
  with_scalar(grad, [&](auto scalar) {
    using T = decltype(scalar);
    TotalVariationArgs<T> a = {};
    a.grid = data<T>(g);
    for (int axis = 0; axis < 3; ++axis) a.vertices[axis] = g.size(axis);
    a.channels = g.size(3);
    a.grad = data<T>(grad);
    a.weight = T(weight);
    a.touched_only = touched_only;
    a.rows = rows ? data<int64_t>(visited) : nullptr;
    a.num_rows = visited.numel();
    NERF_CALL(grad, total_variation, a);
  });
}

NERF_OPERATION(total_variation_grad,
               "(Tensor(a!) grad, Tensor grid, float weight, bool touched_only, Tensor? rows=None) -> ()")

}  // namespace nerf
