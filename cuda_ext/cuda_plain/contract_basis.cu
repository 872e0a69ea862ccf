// contract_basis on CUDA, plain: forward one thread per sample and colour, backward one per sample and channel; neighbouring
// threads read and write neighbouring values.
#include "../cuda/launch.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void contract_basis(const ContractBasisArgs<T>& a, Stream stream) {
  for_each(a.num_samples * kColors, "contract_basis", stream,
           [a] __device__(int64_t i) { a.out[i] = contract_basis_color(a, i / kColors, i % kColors, a.num_basis); });
}

template <class T>
void contract_basis_backward(const ContractBasisArgs<T>& a, Stream stream) {
  for_each(a.num_samples * a.channels, "contract_basis_backward", stream, [a] __device__(int64_t i) {
    const cuda::Place p = cuda::place(i, a.channels);
    a.grad_values[i] = contract_basis_gradient(a, p.row, p.column, unsigned(a.num_basis));
  });
}

NERF_INSTANTIATE(contract_basis, ContractBasisArgs)
NERF_INSTANTIATE(contract_basis_backward, ContractBasisArgs)

}  // namespace nerf::cuda_plain
