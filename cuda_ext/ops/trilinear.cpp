// interpolate_trilinear and its backward: into a new gradient, or added to one that is there.
#include "../portable/trilinear.h"

#include <array>

#include "../portable/trilinear_order.h"
#include "operation.h"
#include "row_table.h"

namespace nerf {
namespace {

// of_points: the type of coords.
GridShape check_grid(const char* name, const Tensor& grid, const Tensor& coords, const std::optional<Tensor>& table,
                     int64_t size_z, ScalarType of_points) {
  const GridShape shape = grid_shape(name, grid, table, size_z, grid);
  if (product(name, {shape.vertices[0], shape.vertices[1], shape.vertices[2]}) == 0)
    reject(std::string(name) + " has shape " + shape_name(grid.sizes()) + ", expected at least one vertex");
  check_argument("coords", coords, grid, of_points, {kAny, 3});
  return shape;
}

// The type of the points of a grid whose values may be float16.
ScalarType type_of_points(const Tensor& grid) {
  if (grid.scalar_type() == ScalarType::Half) return ScalarType::Float;
  check_floating("grid", grid);
  return grid.scalar_type();
}

// body(ShortValues()) or body(ShortSamples()), or as with_scalar. samples: what is interpolated, or its gradient.
template <class Body>
void with_values(const Tensor& grid, const Tensor& samples, const Body& body) {
  if (grid.scalar_type() != ScalarType::Half) with_scalar(grid, body);
  else if (samples.scalar_type() == ScalarType::BFloat16) body(ShortSamples());
  else body(ShortValues());
}

template <class S>
TrilinearArgs<S> grid_arguments(const GridShape& shape, const Tensor& coords) {
  TrilinearArgs<S> a = {};
  a.table = shape.table;
  for (int axis = 0; axis < 3; ++axis) a.vertices[axis] = shape.vertices[axis];
  a.channels = shape.channels;
  a.coords = data<Wide<S>>(coords);
  a.num_points = coords.size(0);
  return a;
}

// Values rising, and where each was before; equal ones keep their order.
std::tuple<Tensor, Tensor> stable_sort(const Tensor& values) {
  using torch::stable::detail::from;
  std::array<StableIValue, 4> stack{from(values), from(std::optional<bool>(true)), from(int64_t(0)), from(false)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::sort", "stable", stack.data(), TORCH_ABI_VERSION));
  return {torch::stable::detail::to<Tensor>(stack[0]), torch::stable::detail::to<Tensor>(stack[1])};
}

// The adjoint, added to a gradient in one order of the points (math/trilinear_order.h). All memory is PyTorch's and nothing
// is read back, so a CUDA graph may hold it.
template <class T>
void add_in_order(const Tensor& grad, const TrilinearArgs<T>& points) {
  if (points.num_points == 0 || points.channels == 0) return;
  TrilinearOrderArgs<T> a = {};
  a.points = points;
  a.narrow = CellOrder(points.vertices).nothing() <= INT32_MAX;
  const Tensor cells = empty(grad, {points.num_points}, a.narrow ? ScalarType::Int : ScalarType::Long);
  a.cells = cells.data_ptr();
  NERF_CALL(grad, trilinear_cells, a);
  const auto [sorted, order] = stable_sort(cells);
  const Tensor bounds = empty(grad, {kParities + 1}, ScalarType::Long);
  const Tensor partial = empty(grad, {a.cuts(), 8, points.channels}, grad.scalar_type());
  a.cells = sorted.data_ptr();
  a.order = data<int64_t>(order);
  a.bounds = data<int64_t>(bounds);
  a.partial = data<T>(partial);
  NERF_CALL(grad, trilinear_in_order, a);
}

}  // namespace

Tensor interpolate_trilinear(const Tensor& grid, const Tensor& coords, const std::optional<Tensor>& table,
                             int64_t size_z, bool to_bfloat16) {
  const ScalarType of_points = type_of_points(grid);
  if (to_bfloat16 && grid.scalar_type() != ScalarType::Half)
    reject(std::string("grid is ") + dtype_name(grid.scalar_type()) + " with to_bfloat16, expected float16");
  const GridShape shape = check_grid("grid", grid, coords, table, size_z, of_points);
  const Tensor g = dense(grid), x = dense(coords);
  Tensor out = empty(g, {x.size(0), shape.channels}, to_bfloat16 ? ScalarType::BFloat16 : of_points);
  with_values(g, out, [&](auto storage) {
    using S = decltype(storage);
    TrilinearArgs<S> a = grid_arguments<S>(shape, x);
    a.grid = data<Value<S>>(g);
    a.out = data<Interpolated<S>>(out);
    NERF_CALL(g, trilinear, a);
  });
  return out;
}

std::tuple<Tensor, Tensor> interpolate_trilinear_backward(const Tensor& grad_out, const Tensor& grid,
                                                          const Tensor& coords, bool needs_grid, bool needs_coords,
                                                          const std::optional<Tensor>& table, int64_t size_z) {
  const ScalarType of_points = type_of_points(grid);
  const GridShape shape = check_grid("grid", grid, coords, table, size_z, of_points);
  const bool is_short = grid.scalar_type() == ScalarType::Half && grad_out.scalar_type() == ScalarType::BFloat16;
  check_argument("grad_out", grad_out, grid, is_short ? ScalarType::BFloat16 : of_points,
                 {coords.size(0), shape.channels});
  if (needs_grid && grid.scalar_type() == ScalarType::Half)
    reject("grid has dtype float16 and needs a gradient, expected float32, or grad to add to: float16 has not its range");
  const Tensor go = dense(grad_out), g = dense(grid), x = dense(coords);
  const Shape like_grid(g.sizes().begin(), g.sizes().end());
  Tensor grad_grid = needs_grid ? zeros(g, like_grid, g.scalar_type()) : no_gradient(g);
  Tensor grad_coords = needs_coords ? empty(g, {x.size(0), 3}, of_points) : no_gradient(g);
  with_values(g, go, [&](auto storage) {
    using S = decltype(storage);
    TrilinearArgs<S> a = grid_arguments<S>(shape, x);
    a.grid = data<Value<S>>(g);
    a.grad_out = data<Interpolated<S>>(go);
    a.grad_grid = needs_grid ? data<Gradient<S>>(grad_grid) : nullptr;
    a.grad_coords = needs_coords ? data<Wide<S>>(grad_coords) : nullptr;
    NERF_CALL(g, trilinear_backward, a);
  });
  return {grad_grid, grad_coords};
}

void interpolate_trilinear_grad(const Tensor& grad, const Tensor& grad_out, const Tensor& coords, bool deterministic,
                                const std::optional<Tensor>& table, int64_t size_z) {
  const bool is_short = grad.scalar_type() == ScalarType::BFloat16;
  if (!is_short) check_floating("grad", grad);
  const ScalarType of_points = is_short ? ScalarType::Float : grad.scalar_type();
  const GridShape shape = check_grid("grad", grad, coords, table, size_z, of_points);
  check_argument("grad_out", grad_out, grad, grad.scalar_type(), {coords.size(0), shape.channels});
  if (table && deterministic && grad.is_cuda())
    reject("table is given with deterministic, expected a dense grid: on CUDA sparse ones are added to in any order");
  if (is_short && deterministic && grad.is_cuda())
    reject("grad has dtype bfloat16 with deterministic, expected float32: on CUDA bfloat16 is added to in any order");
  check_in_place("grad", grad);
  const Tensor go = dense(grad_out), x = dense(coords);
  check_apart({{"grad", &grad}}, {{"grad_out", &go}, {"coords", &x}, {"table", &shape.words}});
  const auto add = [&](auto storage, const auto& call) {
    using S = decltype(storage);
    TrilinearArgs<S> a = grid_arguments<S>(shape, x);
    a.grad_out = data<Interpolated<S>>(go);
    a.grad_grid = data<Gradient<S>>(grad);
    call(a);
  };
  if (is_short) return add(ShortSamples(), [&](const auto& a) { NERF_CALL(grad, trilinear_backward, a); });
  with_scalar(grad, [&](auto scalar) {
    add(scalar, [&](const auto& a) {
      // On the CPU there is one order in any case, and a faster one.
      if (deterministic && grad.is_cuda()) add_in_order(grad, a);
      else NERF_CALL(grad, trilinear_backward, a);
    });
  });
}

NERF_OPERATION(interpolate_trilinear,
               "(Tensor grid, Tensor coords, Tensor? table=None, int size_z=0, bool to_bfloat16=False) -> Tensor")
NERF_OPERATION(interpolate_trilinear_backward,
               "(Tensor grad_out, Tensor grid, Tensor coords, bool needs_grid, bool needs_coords, Tensor? table=None, "
               "int size_z=0) -> (Tensor grad_grid, Tensor grad_coords)")
NERF_OPERATION(interpolate_trilinear_grad,
               "(Tensor(a!) grad, Tensor grad_out, Tensor coords, bool deterministic=False, Tensor? table=None, int "
               "size_z=0) -> ()")

}  // namespace nerf
