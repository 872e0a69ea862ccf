// sample_images on CUDA. The batches of training are so small that starting a kernel takes longer than its work, which is to
// wait for an index and then for a pixel. Pixels of four bytes are one load and one store of a thread, in blocks so small
// that a batch reaches every multiprocessor; other pixels have a thread per value, so that none waits for its neighbor.
#include "../portable/sample_images.h"
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr int kPixelBlock = 64;

// The nearest number to byte / 255: the quotient by a rounded inverse, and what its remainder is worth. For each of the 256
// bytes it is what division gives, without division's branches.
template <class T>
__device__ T share_of_255(unsigned byte) {
  constexpr T kInverse = T(1) / T(255);
  const T quotient = T(byte) * kInverse;
  return fma(fma(T(-255), quotient, T(byte)), kInverse, quotient);
}

template <class T>
__global__ void __launch_bounds__(kPixelBlock) sample_four_bytes_kernel(SampleImagesArgs<T> a) {
  const int64_t r = int64_t(blockIdx.x) * kPixelBlock + threadIdx.x;
  if (r >= a.num_rays) return;
  const int64_t pixel = a.pixel_indices[r];
  const bool valid = pixel >= 0 && pixel < a.num_pixels;
  const unsigned bytes = valid ? reinterpret_cast<const unsigned*>(a.images)[pixel] : 0;
  Pack<T, 4> values;
#pragma unroll
  for (int c = 0; c < 4; ++c) values.v[c] = valid ? share_of_255<T>(bytes >> 8 * c & 255) : T(NAN);
  reinterpret_cast<Pack<T, 4>*>(a.out)[r] = values;
}

}  // namespace

template <class T>
void sample_images(const SampleImagesArgs<T>& a, Stream stream) {
  if (a.channels == 4 && reinterpret_cast<uintptr_t>(a.images) % 4 == 0 &&
      reinterpret_cast<uintptr_t>(a.out) % sizeof(Pack<T, 4>) == 0)
    return launch<kPixelBlock>(sample_four_bytes_kernel<T>, a.num_rays, "sample_images", stream, a);
  for_each(a.num_rays * a.channels, "sample_images", stream, [a] __device__(int64_t i) {
    const Place p = place(i, a.channels);
    sample_channel(a, p.row, p.column);
  });
}

NERF_INSTANTIATE(sample_images, SampleImagesArgs)

}  // namespace nerf::cuda
