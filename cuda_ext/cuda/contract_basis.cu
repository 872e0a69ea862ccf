// contract_basis on CUDA, for the spherical harmonics of each degree with rows of whole 16 bytes: a thread per sample, so
// that the row of its ray is read once for three colors. Other shapes take the plain kernels.
//
// The floor is bytes: 4 C of coefficients a sample and 20 of indices and colors, at C = 28 and 377000 samples 0.012 ms at
// 4.3 TB/s, either way. A thread that moved its row alone would meet another row than its neighbor: each warp moves the
// rows of its 32 samples as one run of packs, and turns them in shared memory, where a warp waits for nobody but itself.
#include <type_traits>

#include "../portable/contract_basis.h"
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr int kSampleBlock = 64;

template <class T, int kBasis>
struct Rows {
  static constexpr int kSize = kPackSize<T>, kCoefficients = kColors * kBasis;
  static constexpr int kChannels = (kCoefficients + 3) / 4 * 4, kPacks = kChannels / kSize;
  static constexpr int kStride = (kPacks | 1) * kSize;  // in shared memory: an odd number of packs meets every bank

  // Where pack p of the run lies in shared memory.
  static __device__ unsigned place(unsigned p) { return (p + p / kPacks * (kStride / kSize - kPacks)) * kSize; }
};

// Basis functions of sample n's ray; NaN where one of the two does not exist.
template <class T, int kBasis>
struct Basis {
  T v[kBasis];

  __device__ Basis(const ContractBasisArgs<T>& a, int64_t n) {
    const T* row = n < a.num_samples ? basis_of(a, n) : nullptr;
#pragma unroll
    for (int k = 0; k < kBasis; ++k) v[k] = row ? row[k] : T(NAN);
  }
};

template <class T, int kBasis>
__global__ void __launch_bounds__(kSampleBlock, 1) contract_kernel(ContractBasisArgs<T> a) {
  using R = Rows<T, kBasis>;
  alignas(kPackBytes) __shared__ T shared[kSampleBlock * R::kStride];
  const int lane = threadIdx.x % 32, warp = threadIdx.x - lane;
  const int64_t first = int64_t(blockIdx.x) * kSampleBlock + warp;
  const int count = int(min2<int64_t>(a.num_samples - first, 32));
  T *const rows = shared + warp * R::kStride, *const own = rows + lane * R::kStride;
  Pack<T, R::kSize> packs[R::kPacks];
#pragma unroll
  for (int j = 0; j < R::kPacks; ++j) {
    packs[j] = {};
    const int p = 32 * j + lane;
    if (p < count * R::kPacks) packs[j] = load_once<R::kSize>(a.values + first * R::kChannels + p * R::kSize);
  }
  const Basis<T, kBasis> basis(a, first + lane);
#pragma unroll
  for (int j = 0; j < R::kPacks; ++j) store(rows + R::place(32 * j + lane), packs[j]);
  __syncwarp();
  T colors[kColors] = {};
#pragma unroll
  for (int p = 0; p < R::kPacks; ++p) {
    const auto values = load<R::kSize>(own + p * R::kSize);
#pragma unroll
    for (int c = p * R::kSize; c < (p + 1) * R::kSize && c < R::kCoefficients; ++c)
      colors[c / kBasis] += values.v[c % R::kSize] * basis.v[c % kBasis];
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kColors; ++j) rows[kColors * lane + j] = colors[j];
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kColors; ++j)
    if (32 * j + lane < kColors * count) a.out[kColors * first + 32 * j + lane] = rows[32 * j + lane];
}

template <class T, int kBasis>
__global__ void __launch_bounds__(kSampleBlock, 1) contract_backward_kernel(ContractBasisArgs<T> a) {
  using R = Rows<T, kBasis>;
  alignas(kPackBytes) __shared__ T shared[kSampleBlock * R::kStride];
  const int lane = threadIdx.x % 32, warp = threadIdx.x - lane;
  const int64_t first = int64_t(blockIdx.x) * kSampleBlock + warp;
  const int count = int(min2<int64_t>(a.num_samples - first, 32));
  T *const rows = shared + warp * R::kStride, *const own = rows + lane * R::kStride;
  T grad_out[kColors];
#pragma unroll
  for (int j = 0; j < kColors; ++j) grad_out[j] = lane < count ? a.grad_out[kColors * (first + lane) + j] : T(0);
  const Basis<T, kBasis> basis(a, first + lane);
#pragma unroll
  for (int p = 0; p < R::kPacks; ++p) {
    Pack<T, R::kSize> grad = {};
#pragma unroll
    for (int c = p * R::kSize; c < (p + 1) * R::kSize && c < R::kCoefficients; ++c)
      grad.v[c % R::kSize] = grad_out[c / kBasis] * basis.v[c % kBasis];
    store(own + p * R::kSize, grad);
  }
  __syncwarp();
  Pack<T, R::kSize> packs[R::kPacks];
#pragma unroll
  for (int j = 0; j < R::kPacks; ++j) packs[j] = load<R::kSize>(rows + R::place(32 * j + lane));
  auto* const out = reinterpret_cast<Pack<T, R::kSize>*>(a.grad_values) + first * R::kPacks;
#pragma unroll
  for (int j = 0; j < R::kPacks; ++j)
    if (32 * j + lane < count * R::kPacks) out[32 * j + lane] = packs[j];
}

template <int kBasis, class T>
bool fits(const ContractBasisArgs<T>& a) {
  return a.channels == Rows<T, kBasis>::kChannels && is_pack_aligned(a.values) && is_pack_aligned(a.grad_values);
}

// Runs `fast` with the number of basis functions as a constant, else plain().
template <class T, class Fast, class Plain>
void with_basis(const ContractBasisArgs<T>& a, const Fast& fast, const Plain& plain) {
  if (a.num_basis == 1 && fits<1>(a)) return fast(std::integral_constant<int, 1>());
  if (a.num_basis == 4 && fits<4>(a)) return fast(std::integral_constant<int, 4>());
  if (a.num_basis == 9 && fits<9>(a)) return fast(std::integral_constant<int, 9>());
  if (a.num_basis == 16 && fits<16>(a)) return fast(std::integral_constant<int, 16>());
  plain();
}

}  // namespace

template <class T>
void contract_basis(const ContractBasisArgs<T>& a, Stream stream) {
  const auto fast = [&](auto basis) {
    launch<kSampleBlock>(contract_kernel<T, decltype(basis)::value>, a.num_samples, "contract_basis", stream, a);
  };
  with_basis(a, fast, [&] { cuda_plain::contract_basis(a, stream); });
}

template <class T>
void contract_basis_backward(const ContractBasisArgs<T>& a, Stream stream) {
  const auto fast = [&](auto basis) {
    launch<kSampleBlock>(contract_backward_kernel<T, decltype(basis)::value>, a.num_samples, "contract_basis_backward",
                         stream, a);
  };
  with_basis(a, fast, [&] { cuda_plain::contract_basis_backward(a, stream); });
}

NERF_INSTANTIATE(contract_basis, ContractBasisArgs)
NERF_INSTANTIATE(contract_basis_backward, ContractBasisArgs)

}  // namespace nerf::cuda
