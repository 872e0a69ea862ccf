// contract_basis on CUDA: nothing beats the plain kernel so far.
#include "launch.cuh"

namespace nerf::cuda {

template <class T>
void contract_basis(const ContractBasisArgs<T>& a, Stream stream) {
  cuda_plain::contract_basis(a, stream);
}

template <class T>
void contract_basis_backward(const ContractBasisArgs<T>& a, Stream stream) {
  cuda_plain::contract_basis_backward(a, stream);
}

NERF_INSTANTIATE(contract_basis, ContractBasisArgs)
NERF_INSTANTIATE(contract_basis_backward, ContractBasisArgs)

}  // namespace nerf::cuda
