// total_variation_grad on CUDA, for rows of whole 16 bytes: a thread per pack. Without a list of vertices a block owns a
// tile of 32 packs along z and eight y, and walks along x, so that of the six neighbours four were or will be read by the
// same block and come from its cache. With one, which holds the few that training visits, threads follow the list; where
// all gradients of a pack are zero nothing else of it is read. Other rows take the plain kernel.
#include "../portable/total_variation.h"
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr int kTileZ = 32, kTileY = kThreads / kTileZ;  // packs, vertices
constexpr int kWalk = 8;                                // vertices along x

// The neighbours of a value along each axis, below and above.
struct Neighbours {
  int64_t stride[3];
  bool there[3][2];

  // Where the one of the value at i begins.
  __device__ int64_t place(int64_t i, int axis, int up) const { return up ? i + stride[axis] : i - stride[axis]; }
};

struct SparseNeighbours {
  int64_t row_size, column, row[3][2];
  bool there[3][2];

  __device__ int64_t place(int64_t, int axis, int up) const { return row[axis][up] * row_size + column; }
};

// Adds to the gradients of the pack at i.
template <class T, int kSize, class Near>
__device__ void add_slopes(const TotalVariationArgs<T>& a, int64_t i, Pack<T, kSize> grad, const Near& near) {
  const Pack<T, kSize> own = load<kSize>(a.grid + i);
  // All six are on their way together; where there is no neighbour, the vertex itself is read instead.
  Pack<T, kSize> other[3][2], sum = {};
#pragma unroll
  for (int axis = 2; axis >= 0; --axis)
#pragma unroll
    for (int up = 0; up < 2; ++up) {
      other[axis][up] = load<kSize>(a.grid + (near.there[axis][up] ? near.place(i, axis, up) : i));
    }
#pragma unroll
  for (int axis = 2; axis >= 0; --axis)
#pragma unroll
    for (int up = 0; up < 2; ++up)
#pragma unroll
      for (int c = 0; c < kSize; ++c)
        sum.v[c] += near.there[axis][up] ? variation_slope(own.v[c], other[axis][up].v[c]) : T(0);
#pragma unroll
  for (int c = 0; c < kSize; ++c)
    if (!a.touched_only || grad.v[c] != T(0)) grad.v[c] += a.weight * sum.v[c];
  store(a.grad + i, grad);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    total_variation_kernel(TotalVariationArgs<T> a, int64_t tiles_z, int64_t tiles_y) {
  constexpr int kSize = kPackSize<T>;
  const int64_t tile = blockIdx.x, size_x = a.vertices[0], size_y = a.vertices[1], row = a.vertices[2] * a.channels;
  const int64_t column = (tile % tiles_z * kTileZ + threadIdx.x % kTileZ) * kSize;  // z and channel
  const int64_t y = tile / tiles_z % tiles_y * kTileY + threadIdx.x / kTileZ;
  if (column >= row || y >= size_y) return;
  const int64_t first = tile / (tiles_z * tiles_y) * kWalk, end = min2(first + kWalk, size_x), plane = size_y * row;
  for (int64_t x = first; x < end; ++x) {
    const int64_t i = x * plane + y * row + column;
    const auto grad = load<kSize>(a.grad + i);
    if (a.touched_only && is_zero(grad)) continue;
    add_slopes(a, i, grad,
               Neighbours{{plane, row, a.channels},
                          {{x > 0, x + 1 < size_x},
                           {y > 0, y + 1 < size_y},
                           {column >= a.channels, column + a.channels < row}}});
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) total_variation_of_rows_kernel(TotalVariationArgs<T> a, int64_t packs) {
  constexpr int kSize = kPackSize<T>;
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t size_x = a.vertices[0], size_y = a.vertices[1], size_z = a.vertices[2];
  if (k >= a.num_rows * packs) return;
  const Place p = place(k, packs);
  const int64_t row = a.rows[p.row];
  if (row < 0 || row >= size_x * size_y * size_z) return;
  const int64_t i = (row * packs + p.column) * kSize;
  const auto grad = load<kSize>(a.grad + i);
  if (a.touched_only && is_zero(grad)) return;
  const Place column = place(row, size_z), plane = place(column.row, size_y);
  const int64_t x = plane.row, y = plane.column, z = column.column, along = size_z * a.channels;
  add_slopes(a, i, grad,
             Neighbours{{size_y * along, along, a.channels},
                        {{x > 0, x + 1 < size_x}, {y > 0, y + 1 < size_y}, {z > 0, z + 1 < size_z}}});
}

template <class T>
__global__ void __launch_bounds__(kThreads) sparse_total_variation_kernel(TotalVariationArgs<T> a, int64_t packs) {
  constexpr int kSize = kPackSize<T>;
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= a.num_rows * packs) return;
  const Place p = place(k, packs);
  const SparseRows rows = a.table.sparse();
  const SparseVertex found = sparse_vertex(a, rows, a.rows[p.row]);
  if (found.row < 0) return;
  SparseNeighbours near = {a.channels, int64_t(p.column) * kSize};
  const int64_t i = found.row * a.channels + near.column;
  const auto grad = load<kSize>(a.grad + i);
  if (a.touched_only && is_zero(grad)) return;
  neighbour_rows(a, rows, found, near.row);
#pragma unroll
  for (int axis = 0; axis < 3; ++axis)
#pragma unroll
    for (int up = 0; up < 2; ++up) near.there[axis][up] = near.row[axis][up] >= 0;
  add_slopes(a, i, grad, near);
}

}  // namespace

template <class T>
void total_variation(const TotalVariationArgs<T>& a, Stream stream) {
  constexpr int kSize = kPackSize<T>;
  if (a.channels % kSize != 0 || !is_pack_aligned(a.grid) || !is_pack_aligned(a.grad))
    return cuda_plain::total_variation(a, stream);
  const int64_t packs = a.channels / kSize;
  if (a.table.words) {
    launch(sparse_total_variation_kernel<T>, a.num_rows * packs, "total_variation_grad", stream, a, packs);
    return;
  }
  if (a.rows) {
    launch(total_variation_of_rows_kernel<T>, a.num_rows * packs, "total_variation_grad", stream, a, packs);
    return;
  }
  const auto parts = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const int64_t tiles_z = parts(a.vertices[2] * packs, kTileZ), tiles_y = parts(a.vertices[1], kTileY),
                tiles = tiles_z * tiles_y * parts(a.vertices[0], kWalk);
  launch(total_variation_kernel<T>, tiles * kThreads, "total_variation_grad", stream, a, tiles_z, tiles_y);
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)

}  // namespace nerf::cuda
