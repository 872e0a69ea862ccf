// contract_basis on CUDA. Forward: the plain kernel, a thread per sample and colour. Backward: for the spherical harmonics of
// each degree the number of basis functions is a constant, so that no thread divides by a number it does not know.
#include <type_traits>

#include "launch.cuh"

namespace nerf::cuda {

template <class T>
void contract_basis(const ContractBasisArgs<T>& a, Stream stream) {
  cuda_plain::contract_basis(a, stream);
}

template <int kBasis, class T>
void backward_of(const ContractBasisArgs<T>& a, Stream stream) {
  for_each(a.num_samples * a.channels, "contract_basis_backward", stream, [a] __device__(int64_t i) {
    const Place p = place(i, a.channels);
    a.grad_values[i] = contract_basis_gradient(a, p.row, p.column, std::integral_constant<unsigned, kBasis>());
  });
}

template <class T>
void contract_basis_backward(const ContractBasisArgs<T>& a, Stream stream) {
  switch (a.num_basis) {
    case 1: return backward_of<1>(a, stream);
    case 4: return backward_of<4>(a, stream);
    case 9: return backward_of<9>(a, stream);
    case 16: return backward_of<16>(a, stream);
    default: return cuda_plain::contract_basis_backward(a, stream);
  }
}

NERF_INSTANTIATE(contract_basis, ContractBasisArgs)
NERF_INSTANTIATE(contract_basis_backward, ContractBasisArgs)

}  // namespace nerf::cuda
