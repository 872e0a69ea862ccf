// adam_step: one step of masked Adam, in place; the gradient is zero afterwards. It may add total variation before.
#include "../portable/adam.h"

#include "operation.h"
#include "row_table.h"

namespace nerf {

void adam_step(const Tensor& param, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& grad,
               const Tensor& lr, const Tensor& step, const std::optional<Tensor>& rows, double beta1, double beta2,
               double eps, double variation, const std::optional<Tensor>& vertices, const std::optional<Tensor>& table,
               int64_t size_z) {
  const bool has_short_values = param.scalar_type() == ScalarType::Half;
  if (!has_short_values) check_floating("param", param);
  const ScalarType dtype = has_short_values ? ScalarType::Float : param.scalar_type();
  const Shape shape(param.sizes().begin(), param.sizes().end());
  check_argument("lr", lr, param, ScalarType::Float, {kAny});
  check_argument("step", step, param, ScalarType::Float, {1});
  const int64_t channels = shape.empty() ? 1 : shape.back();
  check_channels("param", channels);
  if (rows) check_argument("rows", *rows, param, ScalarType::Long, {kAny});
  const Shape moments = rows ? Shape{rows->numel(), channels} : shape;
  const bool are_short =
      has_short_values || (dtype == ScalarType::Float && exp_avg.scalar_type() == ScalarType::BFloat16);
  const ScalarType of_moments = are_short ? ScalarType::BFloat16 : dtype;
  check_argument("grad", grad, param, has_short_values ? ScalarType::BFloat16 : dtype, shape);
  check_argument("exp_avg", exp_avg, param, of_moments, moments);
  check_argument("exp_avg_sq", exp_avg_sq, param, of_moments, moments);
  if (lr.numel() != 1 && lr.numel() != channels)
    reject("lr has shape " + shape_name(lr.sizes()) + ", expected [1] or one per channel, [" +
           std::to_string(channels) + "]");
  check_in_place("param", param);
  check_in_place("exp_avg", exp_avg);
  check_in_place("exp_avg_sq", exp_avg_sq);
  check_in_place("grad", grad);
  const Tensor rate = dense(lr), visited = rows ? dense(*rows) : no_gradient(param), number = dense(step);
  const int64_t all_rows = param.numel() ? param.numel() / channels : 0, num_rows = rows ? visited.numel() : all_rows;
  const bool adds = variation != 0;
  GridShape grid = {{}, channels, rate, {}};
  Tensor listed = visited;
  if (adds) {
    grid = grid_shape("param", param, table, size_z, param);
    if (bool(table) != bool(vertices))
      reject((table ? "vertices" : "table") + std::string(" is missing, expected both of a sparse grid, or none"));
    if (vertices) {
      check_argument("vertices", *vertices, param, ScalarType::Long, {num_rows});
      listed = dense(*vertices);
    }
  }
  check_apart({{"param", &param}, {"exp_avg", &exp_avg}, {"exp_avg_sq", &exp_avg_sq}, {"grad", &grad}},
              {{"lr", &rate}, {"step", &number}, {"rows", &visited}, {"vertices", &listed}, {"table", &grid.words}});
  if (channels == 0) return;
  if (rows) check_indices("rows", visited, all_rows);
  if (adds && vertices)
    check_indices("vertices", listed, product("param", {grid.vertices[0], grid.vertices[1], grid.vertices[2]}));
  // An empty list has no address, by which kernels tell that there is one; of no rows, none is there.
  if (num_rows == 0 || all_rows == 0) return;
  const auto step_on = [&](auto scalar) {
    using S = decltype(scalar);
    using T = Wide<S>;
    AdamArgs<S> a = {};
    a.param = data<Value<S>>(param);
    a.exp_avg = data<Moment<S>>(exp_avg);
    a.exp_avg_sq = data<Moment<S>>(exp_avg_sq);
    a.grad = data<Gradient<S>>(grad);
    a.channels = channels;
    a.all_rows = all_rows;
    a.rows = rows ? data<int64_t>(visited) : nullptr;
    a.num_rows = num_rows;
    a.lr = data<float>(rate);
    a.lr_count = rate.numel();
    a.step = data<float>(number);
    a.beta1 = beta1;
    a.beta2 = beta2;
    a.eps = eps;
    if (!adds) return NERF_CALL(param, adam, a);
    AdamSmoothArgs<S> smooth = {a, {}};
    auto& v = smooth.variation;
    v.grid = a.param;
    v.table = grid.table;
    for (int axis = 0; axis < 3; ++axis) v.vertices[axis] = grid.vertices[axis];
    v.channels = channels;
    v.grad = a.grad;
    v.weight = T(variation);
    v.touched_only = true;
    v.rows = rows || vertices ? data<int64_t>(listed) : nullptr;
    v.num_rows = num_rows;
    NERF_CALL(param, adam_smooth, smooth);
  };
  if (has_short_values) step_on(ShortValues());
  else if (are_short) step_on(ShortMoments());
  else with_scalar(param, step_on);
}

NERF_OPERATION(adam_step,
               "(Tensor(a!) param, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor(d!) grad, Tensor lr, Tensor step, "
               "Tensor? rows, float beta1, float beta2, float eps, float variation=0, Tensor? vertices=None, Tensor? "
               "table=None, int size_z=0) -> ()")

}  // namespace nerf
