// contract_basis: forward one color of a sample at a time, backward one channel; neighboring threads read and write
// neighboring values.
#pragma once

#include "../device.h"
#include "../math/contract_basis.h"
#include "../math/place.h"

namespace nerf {
namespace portable {

template <class T>
void contract_basis(const Device& device, const ContractBasisArgs<T>& a) {
  device.for_each("contract_basis", a.num_samples * kColors, [a] ON_DEVICE(int64_t i) {
    a.out[i] = contract_basis_color(a, i / kColors, i % kColors, a.num_basis);
  });
}

template <class T>
void contract_basis_backward(const Device& device, const ContractBasisArgs<T>& a) {
  device.for_each("contract_basis_backward", a.num_samples * a.channels, [a] ON_DEVICE(int64_t i) {
    const Place p = place(i, a.channels);
    a.grad_values[i] = contract_basis_gradient(a, p.row, p.column, unsigned(a.num_basis));
  });
}

}  // namespace portable

NERF_PORTABLE(contract_basis, ContractBasisArgs)
NERF_PORTABLE(contract_basis_backward, ContractBasisArgs)

}  // namespace nerf
