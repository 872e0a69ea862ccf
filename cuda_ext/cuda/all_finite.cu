// all_finite on CUDA: a block per chunk, of which each thread has all its loads on their way at once, 16 bytes each. A
// million numbers are enough blocks for the whole chip; a tensor of few numbers is a block beside them.
#include "../portable/all_finite.h"

namespace nerf::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads, 1) all_finite_kernel(AllFiniteArgs<T> a) {
  const FiniteChunk<T> chunk = finite_chunk(a, blockIdx.x);
  constexpr int kSize = kPackSize<T>, kPacks = int(kFiniteChunk) / (kThreads * kSize);
  bool finite = true;
  if (chunk.size == kFiniteChunk && reinterpret_cast<uintptr_t>(chunk.values) % kPackBytes == 0) {
    Pack<T, kSize> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs[k] = load<kSize>(chunk.values + (k * kThreads + threadIdx.x) * kSize);
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
#pragma unroll
      for (int c = 0; c < kSize; ++c) finite = finite && is_finite(packs[k].v[c]);
  } else {
    T values[kPacks * kSize];
#pragma unroll
    for (int k = 0; k < kPacks * kSize; ++k) {
      const int i = k * kThreads + threadIdx.x;
      values[k] = i < chunk.size ? chunk.values[i] : T(0);
    }
#pragma unroll
    for (int k = 0; k < kPacks * kSize; ++k) finite = finite && is_finite(values[k]);
  }
  if (!finite) Device::clear(a.finite);
}

}  // namespace

template <class T>
void all_finite(const AllFiniteArgs<T>& a, Stream stream) {
  launch(all_finite_kernel<T>, a.chunks * kThreads, "all_finite", stream, a);
}

NERF_INSTANTIATE(all_finite, AllFiniteArgs)

}  // namespace nerf::cuda
