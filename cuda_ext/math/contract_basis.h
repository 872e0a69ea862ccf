// Color from coefficients: each of three colors is the sum of K coefficients times K basis functions of the sample's ray.
//
//   out[n][j] = sum over k of values[n][j * K + k] * basis[ray_indices[n]][k]
//
// The basis functions depend on the ray's direction alone (spherical harmonics: Yu et al. 2021, eq. 1), so there is one row
// of them per ray. Channels behind the 3 K coefficients are padding.
#pragma once

#include "host_device.h"

namespace nerf {

constexpr int64_t kColors = 3;

template <class T>
struct ContractBasisArgs {
  const T* values;             // [N,C], C >= 3 K
  const T* basis;              // [R,K]
  const int64_t* ray_indices;  // [N]
  int64_t num_samples, num_rays, channels, num_basis;
  T* out;             // [N,3] forward
  const T* grad_out;  // [N,3] backward
  T* grad_values;     // [N,C]
};

// The row of basis functions of a sample; null where its ray does not exist.
template <class T>
HOST_DEVICE const T* basis_of(const ContractBasisArgs<T>& a, int64_t n) {
  const int64_t ray = a.ray_indices[n];
  return ray >= 0 && ray < a.num_rays ? a.basis + ray * a.num_basis : nullptr;
}

// One color of one sample. num_basis is a.num_basis, a constant where the caller knows one.
template <class T, class Count>
HOST_DEVICE T contract_basis_color(const ContractBasisArgs<T>& a, int64_t n, int64_t j, Count num_basis) {
  const T* row = basis_of(a, n);
  if (!row) return T(NAN);
  const T* values = a.values + n * a.channels + j * num_basis;
  T sum = T(0);
  for (int64_t k = 0; k < num_basis; ++k) sum += values[k] * row[k];
  return sum;
}

// The gradient of one channel of one sample.
template <class T, class Channel, class Count>
HOST_DEVICE T contract_basis_gradient(const ContractBasisArgs<T>& a, int64_t n, Channel c, Count num_basis) {
  if (c >= kColors * num_basis) return T(0);
  const T* row = basis_of(a, n);
  return row ? a.grad_out[n * kColors + c / num_basis] * row[c % num_basis] : T(NAN);
}

}  // namespace nerf
