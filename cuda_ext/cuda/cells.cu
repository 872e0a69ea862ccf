// interpolate_cells on CUDA.
//
// Every number is met once, so bytes are all that counts. With E bytes a number the floor is N F E times
//   9 forward (8 corners in, 1 out), 9 backward for feats alone (1 in, 8 out), 17 for both (9 in, 8 out):
// for N = 65536, F = 256, float32 604 MB and 1141 MB, 0.14 ms and 0.27 ms at 4.3 TB/s.
//
// For rows of whole 16 bytes a group of up to 32 lanes per point, each with eight 16-byte pieces on the way at a time;
// streaming loads and stores, for nothing is used twice; the backward makes both gradients in one pass, the point's by
// shuffles, without atomics. Other rows take the plain kernels.
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr unsigned kAllLanes = ~0u;

template <class T>
__global__ void __launch_bounds__(kThreads) gather_packs_kernel(CellsArgs<T> a, int64_t packs, int log2_lanes) {
  constexpr int kSize = kPackSize<T>;
  const int64_t n = (int64_t(blockIdx.x) * kThreads + threadIdx.x) >> log2_lanes;
  if (n >= a.num_points) return;
  const CornerWeights<T> w = cell_weights(a.points + 3 * n);
  const T* feats = a.feats + 8 * n * a.channels;
  const int lanes = 1 << log2_lanes;
  for (int64_t p = threadIdx.x & (lanes - 1); p < packs; p += lanes) {
    Pack<T, kSize> corner[8], sum = {};
#pragma unroll
    for (int k = 0; k < 8; ++k) corner[k] = load_once<kSize>(feats + k * a.channels + p * kSize);
#pragma unroll
    for (int k = 0; k < 8; ++k)
#pragma unroll
      for (int c = 0; c < kSize; ++c) sum.v[c] += w.corner_weight(k) * corner[k].v[c];
    store_once(a.out + n * a.channels + p * kSize, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) cells_backward_packs_kernel(CellsArgs<T> a, int64_t packs, int log2_lanes) {
  constexpr int kSize = kPackSize<T>;
  const int64_t n = (int64_t(blockIdx.x) * kThreads + threadIdx.x) >> log2_lanes;
  const int lanes = 1 << log2_lanes, lane = threadIdx.x & (lanes - 1);
  const bool valid = n < a.num_points;  // all lanes of a warp stay for the shuffles
  const CornerWeights<T> w = cell_weights(a.points + (valid ? 3 * n : 0));
  const int64_t first = 8 * n * a.channels;
  T dots[8] = {};
  for (int64_t p = valid ? lane : packs; p < packs; p += lanes) {
    const Pack<T, kSize> grad = load_once<kSize>(a.grad_out + n * a.channels + p * kSize);
    if (a.grad_points) {
      Pack<T, kSize> corner[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) corner[k] = load_once<kSize>(a.feats + first + k * a.channels + p * kSize);
#pragma unroll
      for (int k = 0; k < 8; ++k)
#pragma unroll
        for (int c = 0; c < kSize; ++c) dots[k] += corner[k].v[c] * grad.v[c];
    }
    if (a.grad_feats)
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        Pack<T, kSize> share;
#pragma unroll
        for (int c = 0; c < kSize; ++c) share.v[c] = w.corner_weight(k) * grad.v[c];
        store_once(a.grad_feats + first + k * a.channels + p * kSize, share);
      }
  }
  if (!a.grad_points) return;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    T sum = point_gradient(w, dots, axis);
    for (int distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
    if (valid && lane == 0) a.grad_points[3 * n + axis] = sum;
  }
}

template <class T>
bool has_whole_packs(const CellsArgs<T>& a) {
  return a.channels > 0 && a.channels % kPackSize<T> == 0 && is_pack_aligned(a.feats) && is_pack_aligned(a.out) &&
         is_pack_aligned(a.grad_out) && is_pack_aligned(a.grad_feats);
}

// One launch of a fast kernel, with as many lanes per point as it has packs, 32 at most.
template <class T, class Kernel>
void launch_packs(Kernel kernel, const CellsArgs<T>& a, const char* name, Stream stream) {
  const int64_t packs = a.channels / kPackSize<T>;
  int log2_lanes = 0;
  while (log2_lanes < 5 && 1 << log2_lanes < packs) ++log2_lanes;
  launch(kernel, a.num_points << log2_lanes, name, stream, a, packs, log2_lanes);
}

}  // namespace

template <class T>
void cells(const CellsArgs<T>& a, Stream stream) {
  if (!has_whole_packs(a)) return cuda_plain::cells(a, stream);
  launch_packs(gather_packs_kernel<T>, a, "interpolate_cells", stream);
}

template <class T>
void cells_backward(const CellsArgs<T>& a, Stream stream) {
  if (!has_whole_packs(a)) return cuda_plain::cells_backward(a, stream);
  launch_packs(cells_backward_packs_kernel<T>, a, "interpolate_cells_backward", stream);
}

NERF_INSTANTIATE(cells, CellsArgs)
NERF_INSTANTIATE(cells_backward, CellsArgs)

}  // namespace nerf::cuda
