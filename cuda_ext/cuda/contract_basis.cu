// contract_basis on CUDA. Forward: the plain kernel, a thread per sample and colour. Backward: for the spherical
// harmonics of each degree the number of basis functions is a constant, so that no thread divides by a number it does
// not know, and where rows are whole packs of 16 bytes a thread writes one.
#include <type_traits>

#include "pack.cuh"

namespace nerf::cuda {

template <class T>
void contract_basis(const ContractBasisArgs<T>& a, Stream stream) {
  cuda_plain::contract_basis(a, stream);
}

template <int kBasis, int kSize, class T>
void backward_in_packs(const ContractBasisArgs<T>& a, Stream stream) {
  const int64_t packs = a.channels / kSize;
  for_each(a.num_samples * packs, "contract_basis_backward", stream, [a, packs] __device__(int64_t i) {
    const Place p = place(i, packs);
    Pack<T, kSize> grad;
#pragma unroll
    for (int c = 0; c < kSize; ++c)
      grad.v[c] = contract_basis_gradient(a, p.row, p.column * kSize + c, std::integral_constant<unsigned, kBasis>());
    store(a.grad_values + i * kSize, grad);
  });
}

template <int kBasis, class T>
void backward_of(const ContractBasisArgs<T>& a, Stream stream) {
  if (a.channels % kPackSize<T> == 0 && is_pack_aligned(a.grad_values))
    backward_in_packs<kBasis, kPackSize<T>>(a, stream);
  else backward_in_packs<kBasis, 1>(a, stream);
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
