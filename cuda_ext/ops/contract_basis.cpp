// contract_basis and its backward.
#include "../portable/contract_basis.h"

#include "operation.h"

namespace nerf {
namespace {

template <class T>
ContractBasisArgs<T> basis_arguments(const Tensor& basis, const Tensor& ray_indices, int64_t channels) {
  ContractBasisArgs<T> a = {};
  a.basis = data<T>(basis);
  a.ray_indices = data<int64_t>(ray_indices);
  a.num_samples = ray_indices.size(0);
  a.num_rays = basis.size(0);
  a.channels = channels;
  a.num_basis = basis.size(1);
  return a;
}

void check_basis(const char* name, int64_t channels, const Tensor& basis) {
  check_channels(name, channels);
  if (basis.size(1) == 0 || channels / kColors < basis.size(1))
    reject(std::string(name) + " has " + std::to_string(channels) + " channels, expected at least 3 for each of " +
           std::to_string(basis.size(1)) + " basis functions");
}

}  // namespace

Tensor contract_basis(const Tensor& values, const Tensor& basis, const Tensor& ray_indices) {
  check_floating("values", values);
  const ScalarType dtype = values.scalar_type();
  check_argument("values", values, values, dtype, {kAny, kAny});
  check_argument("basis", basis, values, dtype, {kAny, kAny});
  check_argument("ray_indices", ray_indices, values, ScalarType::Long, {values.size(0)});
  check_basis("values", values.size(1), basis);
  const Tensor v = dense(values), b = dense(basis), rays = dense(ray_indices);
  check_indices("ray_indices", rays, b.size(0));
  Tensor out = empty(v, {v.size(0), kColors}, dtype);
  with_scalar(v, [&](auto scalar) {
    using T = decltype(scalar);
    ContractBasisArgs<T> a = basis_arguments<T>(b, rays, v.size(1));
    a.values = data<T>(v);
    a.out = data<T>(out);
    NERF_CALL(v, contract_basis, a);
  });
  return out;
}

Tensor contract_basis_backward(const Tensor& grad_out, const Tensor& basis, const Tensor& ray_indices,
                               int64_t channels) {
  check_floating("grad_out", grad_out);
  const ScalarType dtype = grad_out.scalar_type();
  check_argument("ray_indices", ray_indices, grad_out, ScalarType::Long, {kAny});
  check_argument("grad_out", grad_out, grad_out, dtype, {ray_indices.size(0), kColors});
  check_argument("basis", basis, grad_out, dtype, {kAny, kAny});
  check_basis("values", channels, basis);
  const Tensor go = dense(grad_out), b = dense(basis), rays = dense(ray_indices);
  check_indices("ray_indices", rays, b.size(0));
  Tensor grad_values = empty(go, {go.size(0), channels}, dtype);
  with_scalar(go, [&](auto scalar) {
    using T = decltype(scalar);
    ContractBasisArgs<T> a = basis_arguments<T>(b, rays, channels);
    a.grad_out = data<T>(go);
    a.grad_values = data<T>(grad_values);
    NERF_CALL(go, contract_basis_backward, a);
  });
  return grad_values;
}

NERF_OPERATION(contract_basis, "(Tensor values, Tensor basis, Tensor ray_indices) -> Tensor")
NERF_OPERATION(contract_basis_backward, "(Tensor grad_out, Tensor basis, Tensor ray_indices, int channels) -> Tensor")

}  // namespace nerf
