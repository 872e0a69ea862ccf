// total_variation_grad: adds the gradient of the grid's total variation to an existing gradient.
#include "../portable/total_variation.h"

#include "operation.h"
#include "row_table.h"

namespace nerf {

void total_variation_grad(const Tensor& grad, const Tensor& grid, double weight, bool touched_only,
                          const std::optional<Tensor>& rows, const std::optional<Tensor>& table, int64_t size_z) {
  const bool is_short = grad.scalar_type() == ScalarType::BFloat16;
  if (!is_short) check_floating("grad", grad);
  check_in_place("grad", grad);
  const GridShape shape = grid_shape("grad", grad, table, size_z, grad);
  check_argument("grid", grid, grad, is_short ? ScalarType::Half : grad.scalar_type(), Shape(grad.sizes().begin(), grad.sizes().end()));
  if (table && !rows) reject("rows is missing, expected the vertices to visit of a sparse grid");
  if (rows) check_argument("rows", *rows, grad, ScalarType::Long, {kAny});
  const Tensor g = dense(grid), visited = rows ? dense(*rows) : no_gradient(grad);
  check_apart({{"grad", &grad}}, {{"grid", &g}, {"rows", &visited}, {"table", &shape.words}});
  const int64_t vertices = product("grad", {shape.vertices[0], shape.vertices[1], shape.vertices[2]});
  if (rows) check_indices("rows", visited, vertices, table ? kMissing : 0);
  if (grad.numel() == 0 || (rows && rows->numel() == 0)) return;
  const auto add = [&](auto storage) {
    using S = decltype(storage);
    using T = Wide<S>;
    TotalVariationArgs<S> a = {};
    a.grid = data<Value<S>>(g);
    for (int axis = 0; axis < 3; ++axis) a.vertices[axis] = shape.vertices[axis];
    a.channels = shape.channels;
    a.table = shape.table;
    a.grad = data<Gradient<S>>(grad);
    a.weight = T(weight);
    a.touched_only = touched_only;
    a.rows = rows ? data<int64_t>(visited) : nullptr;
    a.num_rows = visited.numel();
    NERF_CALL(grad, total_variation, a);
  };
  if (is_short) add(ShortValues());
  else with_scalar(grad, add);
}

NERF_OPERATION(total_variation_grad,
               "(Tensor(a!) grad, Tensor grid, float weight, bool touched_only, Tensor? rows=None, Tensor? "
               "table=None, int size_z=0) -> ()")

}  // namespace nerf
