// mlp: a row at a time; backward the gradients of a row's hidden values, then each parameter's sum over the rows.
#pragma once

#include "../device.h"
#include "../math/mlp.h"

namespace nerf {
namespace portable {

template <class T>
void mlp_scratch(const Device&, const MlpArgs<T>& a) {
  *a.scratch_bytes = (a.grad_out ? a.layers : 2) * a.rows * a.width * int64_t(sizeof(T));
}

template <class T>
void mlp(const Device& device, const MlpArgs<T>& a) {
  device.for_each("mlp", a.rows, 16, [a] ON_DEVICE(int64_t n) { mlp_row(a, n); });
}

template <class T>
void mlp_backward(const Device& device, const MlpArgs<T>& a) {
  device.for_each("mlp_backward", a.rows, 16, [a] ON_DEVICE(int64_t n) { mlp_row_gradient(a, n); });
  device.for_each("mlp_backward", a.size(), 16,
                  [a] ON_DEVICE(int64_t i) { a.grad_params[i] = mlp_param_gradient(a, i); });
}

}  // namespace portable

NERF_PORTABLE(mlp_scratch, MlpArgs)
NERF_PORTABLE(mlp, MlpArgs)
NERF_PORTABLE(mlp_backward, MlpArgs)

}  // namespace nerf
