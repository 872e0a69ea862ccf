// contract_basis on the CPU, with loops of constant length for the spherical harmonics of each degree.
#include "../portable/contract_basis.h"

#include <type_traits>

namespace nerf::cpu {
namespace {

template <class Body>
void with_basis(int64_t num_basis, const Body& body) {
  switch (num_basis) {
    case 1: return body(std::integral_constant<int64_t, 1>());
    case 4: return body(std::integral_constant<int64_t, 4>());
    case 9: return body(std::integral_constant<int64_t, 9>());
    case 16: return body(std::integral_constant<int64_t, 16>());
    default: return body(num_basis);
  }
}

}  // namespace

template <class T>
void contract_basis(const ContractBasisArgs<T>& a, Stream) {
  with_basis(a.num_basis, [&](auto num_basis) {
    parallel_for(a.num_samples, 2048, [&](int64_t n) {
      for (int64_t j = 0; j < kColors; ++j) a.out[n * kColors + j] = contract_basis_color(a, n, j, num_basis);
    });
  });
}

template <class T>
void contract_basis_backward(const ContractBasisArgs<T>& a, Stream) {
  with_basis(a.num_basis, [&](auto num_basis) {
    parallel_for(a.num_samples, 2048, [&](int64_t n) {
      // contract_basis_gradient for all channels, without a division for each.
      const T* __restrict__ row = basis_of(a, n);
      T* __restrict__ grad = a.grad_values + n * a.channels;
      for (int64_t j = 0; j < kColors; ++j) {
        const T share = row ? a.grad_out[n * kColors + j] : T(NAN);
        for (int64_t k = 0; k < num_basis; ++k) grad[j * num_basis + k] = share * (row ? row[k] : T(1));
      }
      for (int64_t c = kColors * num_basis; c < a.channels; ++c) grad[c] = T(0);
    });
  });
}

NERF_INSTANTIATE(contract_basis, ContractBasisArgs)
NERF_INSTANTIATE(contract_basis_backward, ContractBasisArgs)

}  // namespace nerf::cpu
