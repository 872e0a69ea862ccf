// interpolate_cells on CUDA.
//
// Every number is met once, so bytes are all that counts. With E bytes a number the floor is N F E times
//   9 forward (8 corners in, 1 out), 9 backward for feats alone (1 in, 8 out), 17 for both (9 in, 8 out):
// for N = 65536, F = 256, float32 604 MB and 1141 MB, 0.14 ms and 0.27 ms at 4.3 TB/s.
//
// All in rows of whole 16 bytes; other rows take the plain kernels. Blocks are small and follow memory: the fewer bytes lie
// between the first block at work and the last, the longer memory stays with a row that it has opened, and the less there is
// to wait for at the end. To mark numbers as what nobody meets again (ld.cs, st.cs) made it 5% slower on an H200.
//
// Forward: a thread per pack of a point, with eight loads on the way. Backward for feats alone: it writes eight times
// what it reads, so blocks follow the order of what they write. Backward for both: one pass, a warp per point, whose lanes
// sum the point's gradient by shuffles, without atomics.
#include "../portable/cells.h"
#include "pack.cuh"
#include "warp.cuh"

namespace nerf::cuda {
namespace {

constexpr int kPointBlock = 128;
constexpr int kWrites = 2;  // packs that a thread writes

// Place of what lies `ahead` of a place.
__device__ Place place_behind(const Place& p, unsigned ahead, unsigned columns) {
  return {p.row + (p.column + ahead) / columns, (p.column + ahead) % columns};
}

template <class T>
__global__ void __launch_bounds__(kPointBlock, 1) gather_packs_kernel(CellsArgs<T> a, int64_t packs) {
  constexpr int kSize = kPackSize<T>;
  const int64_t first = int64_t(blockIdx.x) * kPointBlock, i = first + threadIdx.x;
  if (i >= a.num_points * packs) return;
  const Place p = place_behind(place(first, packs), threadIdx.x, unsigned(packs));  // of the point, and of the pack
  const T* feats = a.feats + (8 * p.row * packs + p.column) * kSize;
  Pack<T, kSize> corner[8], sum = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) corner[k] = load<kSize>(feats + k * a.channels);
  const CornerWeights<T> w = cell_weights(a.points + 3 * p.row);
#pragma unroll
  for (int k = 0; k < 8; ++k)
#pragma unroll
    for (int c = 0; c < kSize; ++c) sum.v[c] += w.corner_weight(k) * corner[k].v[c];
  store(a.out + i * kSize, sum);
}

template <class T>
__global__ void __launch_bounds__(kPointBlock, 1) spread_packs_kernel(CellsArgs<T> a, int64_t packs) {
  constexpr int kSize = kPackSize<T>;
  const int64_t first = int64_t(blockIdx.x) * kPointBlock * kWrites, left = 8 * a.num_points * packs - first;
  const Place start = place(first, packs);  // row: of a corner
  Pack<T, kSize> share[kWrites];
  T weight[kWrites];
#pragma unroll
  for (int j = 0; j < kWrites; ++j) {  // all on their way together: nothing is computed with them yet
    const unsigned ahead = unsigned(min2<int64_t>(threadIdx.x + j * kPointBlock, left - 1));
    const Place p = place_behind(start, ahead, unsigned(packs));
    share[j] = load<kSize>(a.grad_out + (p.row / 8 * packs + p.column) * kSize);
    weight[j] = cell_weights(a.points + 3 * (p.row / 8)).corner_weight(int(p.row % 8));
  }
#pragma unroll
  for (int j = 0; j < kWrites; ++j) {
#pragma unroll
    for (int c = 0; c < kSize; ++c) share[j].v[c] *= weight[j];
    const int64_t i = threadIdx.x + j * kPointBlock;
    if (i < left) store(a.grad_feats + (first + i) * kSize, share[j]);
  }
}

template <class T>
__global__ void __launch_bounds__(kPointBlock, 1)
    cells_backward_packs_kernel(CellsArgs<T> a, int64_t packs, int log2_lanes) {
  constexpr int kSize = kPackSize<T>;
  const int64_t n = (int64_t(blockIdx.x) * kPointBlock + threadIdx.x) >> log2_lanes;
  const int lanes = 1 << log2_lanes, lane = threadIdx.x & (lanes - 1);
  const bool valid = n < a.num_points;  // all lanes of a warp stay for the shuffles
  const CornerWeights<T> w = cell_weights(a.points + (valid ? 3 * n : 0));
  const int64_t first = 8 * n * a.channels;
  T dots[8] = {};
  for (int64_t p = valid ? lane : packs; p < packs; p += lanes) {
    const Pack<T, kSize> grad = load<kSize>(a.grad_out + n * a.channels + p * kSize);
    Pack<T, kSize> corner[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) corner[k] = load<kSize>(a.feats + first + k * a.channels + p * kSize);
#pragma unroll
    for (int k = 0; k < 8; ++k)
#pragma unroll
      for (int c = 0; c < kSize; ++c) dots[k] += corner[k].v[c] * grad.v[c];
    if (a.grad_feats)
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        Pack<T, kSize> share;
#pragma unroll
        for (int c = 0; c < kSize; ++c) share.v[c] = w.corner_weight(k) * grad.v[c];
        store(a.grad_feats + first + k * a.channels + p * kSize, share);
      }
  }
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

}  // namespace

template <class T>
void cells(const CellsArgs<T>& a, Stream stream) {
  if (!has_whole_packs(a)) return cuda_plain::cells(a, stream);
  const int64_t packs = a.channels / kPackSize<T>;
  launch<kPointBlock>(gather_packs_kernel<T>, a.num_points * packs, "interpolate_cells", stream, a, packs);
}

template <class T>
void cells_backward(const CellsArgs<T>& a, Stream stream) {
  if (!has_whole_packs(a)) return cuda_plain::cells_backward(a, stream);
  const int64_t packs = a.channels / kPackSize<T>;
  if (!a.grad_points) {
    const int64_t writes = a.grad_feats ? 8 * a.num_points * packs : 0;
    launch<kPointBlock>(spread_packs_kernel<T>, (writes + kWrites - 1) / kWrites, "interpolate_cells_backward", stream,
                        a, packs);
    return;
  }
  int log2_lanes = 0;  // of a point: as many as it has packs, 32 at most
  while (log2_lanes < 5 && 1 << log2_lanes < packs) ++log2_lanes;
  launch<kPointBlock>(cells_backward_packs_kernel<T>, a.num_points << log2_lanes, "interpolate_cells_backward", stream,
                      a, packs, log2_lanes);
}

NERF_INSTANTIATE(cells, CellsArgs)
NERF_INSTANTIATE(cells_backward, CellsArgs)

}  // namespace nerf::cuda
