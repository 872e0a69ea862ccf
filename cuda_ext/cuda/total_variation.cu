// total_variation_grad on CUDA, for rows of whole 16 bytes: a thread per pack. Without a list of vertices a block owns a
// tile of 32 packs along z and eight y, and walks along x, so that of the six neighbors four were or will be read by the
// same block and come from its cache. With one, which holds the few that training visits, threads follow the list; where
// all gradients of a pack are zero nothing else of it is read. Other rows take the plain kernel.
#include "../portable/total_variation.h"
#include "variation.cuh"

namespace nerf::cuda {
namespace {

constexpr int kTileZ = 32, kTileY = kThreads / kTileZ;  // packs, vertices
constexpr int kTileX = 8;                               // vertices along x

// Adds to the gradients of the pack at i.
template <class S, class T, int kSize, class Near>
__device__ void add_slopes(const TotalVariationArgs<S>& a, int64_t i, Pack<T, kSize> grad, const Near& near) {
  const Pack<T, kSize> own = load_wide<kSize>(a.grid + i);
  const Pack<T, kSize> sum = NearPacks<T, kSize>(a.grid, i, near).slopes(own);
#pragma unroll
  for (int c = 0; c < kSize; ++c)
    if (!a.touched_only || grad.v[c] != T(0)) grad.v[c] += a.weight * sum.v[c];
  store_narrow(a.grad + i, grad);
}

template <class S, int kSize>
__global__ void __launch_bounds__(kThreads)
    total_variation_kernel(TotalVariationArgs<S> a, int64_t tiles_z, int64_t tiles_y) {
  const int64_t tile = blockIdx.x, size_x = a.vertices[0], size_y = a.vertices[1], row = a.vertices[2] * a.channels;
  const int64_t column = (tile % tiles_z * kTileZ + threadIdx.x % kTileZ) * kSize;  // z and channel
  const int64_t y = tile / tiles_z % tiles_y * kTileY + threadIdx.x / kTileZ;
  if (column >= row || y >= size_y) return;
  const int64_t first = tile / (tiles_z * tiles_y) * kTileX, end = min2(first + kTileX, size_x), plane = size_y * row;
  for (int64_t x = first; x < end; ++x) {
    const int64_t i = x * plane + y * row + column;
    const auto grad = load_wide<kSize>(a.grad + i);
    if (a.touched_only && is_zero(grad)) continue;
    add_slopes(a, i, grad,
               Neighbors{{plane, row, a.channels},
                          {{x > 0, x + 1 < size_x},
                           {y > 0, y + 1 < size_y},
                           {column >= a.channels, column + a.channels < row}}});
  }
}

template <class S, int kSize>
__global__ void __launch_bounds__(kThreads) total_variation_of_rows_kernel(TotalVariationArgs<S> a, int64_t packs) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= a.num_rows * packs) return;
  const Place p = place(k, packs);
  const int64_t row = a.rows[p.row];
  if (row < 0 || row >= a.vertices[0] * a.vertices[1] * a.vertices[2]) return;
  const int64_t i = (row * packs + p.column) * kSize;
  const auto grad = load_wide<kSize>(a.grad + i);
  if (a.touched_only && is_zero(grad)) return;
  add_slopes(a, i, grad, neighbors(a, row));
}

template <class S, int kSize>
__global__ void __launch_bounds__(kThreads) sparse_total_variation_kernel(TotalVariationArgs<S> a, int64_t packs) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= a.num_rows * packs) return;
  const Place p = place(k, packs);
  const SparseRows rows = a.table.sparse();
  const SparseVertex vertex = sparse_vertex(a, rows, a.rows[p.row]);
  const int64_t row = row_of(rows, vertex), column = int64_t(p.column) * kSize, i = row * a.channels + column;
  if (row < 0) return;
  const auto grad = load_wide<kSize>(a.grad + i);
  if (a.touched_only && is_zero(grad)) return;
  add_slopes(a, i, grad, sparse_neighbors(a, rows, vertex, column));
}

template <int kSize, class S>
void by_packs(const TotalVariationArgs<S>& a, Stream stream) {
  const int64_t packs = a.channels / kSize;
  if (a.table.words) {
    launch(sparse_total_variation_kernel<S, kSize>, a.num_rows * packs, "total_variation_grad", stream, a, packs);
    return;
  }
  if (a.rows) {
    launch(total_variation_of_rows_kernel<S, kSize>, a.num_rows * packs, "total_variation_grad", stream, a, packs);
    return;
  }
  const auto parts = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const int64_t tiles_z = parts(a.vertices[2] * packs, kTileZ), tiles_y = parts(a.vertices[1], kTileY),
                tiles = tiles_z * tiles_y * parts(a.vertices[0], kTileX);
  launch(total_variation_kernel<S, kSize>, tiles * kThreads, "total_variation_grad", stream, a, tiles_z, tiles_y);
}

}  // namespace

template <class S>
void total_variation(const TotalVariationArgs<S>& a, Stream stream) {
  constexpr int kSize = kPackSize<Wide<S>>, kMost = kPackSize<Value<S>>;
  if (a.channels % kSize != 0 || !is_pack_aligned(a.grid) || !is_pack_aligned(a.grad))
    return cuda_plain::total_variation(a, stream);
  if (kMost > kSize && a.channels % kMost == 0) return by_packs<kMost>(a, stream);
  by_packs<kSize>(a, stream);
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)
template void total_variation(const TotalVariationArgs<ShortValues>&, Stream);

}  // namespace nerf::cuda
