// adam_rows: one step of masked Adam at rows of a grid that is elsewhere, in place there.
#include "../portable/adam_rows.h"

#include "operation.h"

namespace nerf {

void adam_rows(const Tensor& param, const Tensor& moments, const Tensor& values, const Tensor& grad,
               const Tensor& stored, const Tensor& rows, const Tensor& places, const Tensor& lr, const Tensor& step,
               double beta1, double beta2, double eps) {
  check_stored("param", param);
  const ScalarType own = param.scalar_type(), dtype = wide_dtype(param);
  check_argument("param", param, param, own, {kAny, kAny});
  const int64_t channels = param.size(1);
  check_channels("param", channels);
  const ScalarType of_moments = own == ScalarType::Half ? ScalarType::BFloat16 : own;
  check_argument("moments", moments, param, of_moments, {2, kAny, channels});
  check_argument("values", values, param, dtype, {kAny, channels});
  check_argument("grad", grad, param, dtype, {values.size(0), channels});
  check_argument("stored", stored, param, ScalarType::Long, {values.size(0)});
  check_argument("rows", rows, param, ScalarType::Long, {kAny});
  check_argument("places", places, param, ScalarType::Long, {rows.size(0)});
  check_argument("lr", lr, param, ScalarType::Float, {kAny});
  check_argument("step", step, param, ScalarType::Float, {1});
  if (lr.numel() != 1 && lr.numel() != channels)
    reject("lr has shape " + shape_name(lr.sizes()) + ", expected [1] or one per channel, [" +
           std::to_string(channels) + "]");
  check_in_place("param", param);
  check_in_place("moments", moments);
  check_in_place("values", values);
  const Tensor g = dense(grad), to = dense(stored), visited = dense(rows), at = dense(places),
               rate = dense(lr), number = dense(step);
  check_apart({{"param", &param}, {"moments", &moments}, {"values", &values}},
              {{"grad", &g}, {"stored", &to}, {"rows", &visited}, {"places", &at}, {"lr", &rate},
               {"step", &number}});
  if (channels == 0 || visited.numel() == 0) return;
  with_stored(param, [&](auto scalar) {
    using S = decltype(scalar);
    using T = Wide<S>;
    const Tensor scale = empty(param, {3}, dtype);
    static_assert(sizeof(AdamScale<T>) == 3 * sizeof(T));
    AdamRowsArgs<S> a = {};
    a.param = data<S>(param);
    a.moments = data<Moment<S>>(moments);
    a.adam.grad = data<T>(g);
    a.adam.channels = channels;
    a.adam.all_rows = param.size(0);
    a.adam.num_rows = visited.numel();
    a.adam.lr = data<float>(rate);
    a.adam.lr_count = rate.numel();
    a.adam.step = data<float>(number);
    a.adam.beta1 = beta1;
    a.adam.beta2 = beta2;
    a.adam.eps = eps;
    a.moment_rows = moments.size(1);
    a.value_rows = values.size(0);
    a.values = data<T>(values);
    a.rows = data<int64_t>(visited);
    a.places = data<int64_t>(at);
    a.stored = data<int64_t>(to);
    a.scale = static_cast<AdamScale<T>*>(scale.data_ptr());
    NERF_CALL(param, adam_rows, a);
  });
}

NERF_OPERATION(adam_rows,
               "(Tensor(a!) param, Tensor(b!) moments, Tensor(c!) values, Tensor grad, Tensor stored, Tensor "
               "rows, Tensor places, Tensor lr, Tensor step, float beta1, float beta2, float eps) -> ()")

}  // namespace nerf
