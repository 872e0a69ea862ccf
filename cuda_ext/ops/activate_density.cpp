// activate_density and its backward.
#include "../portable/activate_density.h"

#include "operation.h"

namespace nerf {
namespace {

template <class T>
ActivateDensityArgs<T> density_arguments(const Tensor& raw, double shift, double scale) {
  ActivateDensityArgs<T> a = {};
  a.raw = data<T>(raw);
  a.shift = T(shift);
  a.scale = T(scale);
  a.count = raw.size(0);
  return a;
}

void check_raw_density(const Tensor& raw) {
  check_floating("raw_density", raw);
  check_argument("raw_density", raw, raw, raw.scalar_type(), {kAny});
}

}  // namespace

Tensor activate_density(const Tensor& raw_density, double shift, double scale) {
  check_raw_density(raw_density);
  const Tensor raw = dense(raw_density);
  Tensor out = empty(raw, {raw.size(0)}, raw.scalar_type());
  with_scalar(raw, [&](auto scalar) {
    using T = decltype(scalar);
    ActivateDensityArgs<T> a = density_arguments<T>(raw, shift, scale);
    a.out = data<T>(out);
    NERF_CALL(raw, activate_density, a);
  });
  return out;
}

Tensor activate_density_backward(const Tensor& grad_out, const Tensor& raw_density, double shift, double scale) {
  check_raw_density(raw_density);
  check_argument("grad_out", grad_out, raw_density, raw_density.scalar_type(), {raw_density.size(0)});
  const Tensor grad = dense(grad_out), raw = dense(raw_density);
  Tensor grad_raw = empty(raw, {raw.size(0)}, raw.scalar_type());
  with_scalar(raw, [&](auto scalar) {
    using T = decltype(scalar);
    ActivateDensityArgs<T> a = density_arguments<T>(raw, shift, scale);
    a.grad_out = data<T>(grad);
    a.grad_raw = data<T>(grad_raw);
    NERF_CALL(raw, activate_density_backward, a);
  });
  return grad_raw;
}

NERF_OPERATION(activate_density, "(Tensor raw_density, float shift, float scale) -> Tensor")
NERF_OPERATION(activate_density_backward, "(Tensor grad_out, Tensor raw_density, float shift, float scale) -> Tensor")

}  // namespace nerf
