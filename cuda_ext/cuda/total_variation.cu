// total_variation_grad on CUDA, for rows of whole 16 bytes: a thread per pack. A block owns a tile of 32 packs along z
// and eight y, and walks along x, so that of the six neighbours four were or will be read by the same block and come
// from its cache. Other rows take the plain kernel.
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr int kTileZ = 32, kTileY = kThreads / kTileZ;  // packs, vertices
constexpr int kWalk = 8;                                // vertices along x

template <class T>
__global__ void __launch_bounds__(kThreads)
    total_variation_kernel(TotalVariationArgs<T> a, int64_t tiles_z, int64_t tiles_y) {
  constexpr int kSize = kPackSize<T>;
  const int64_t tile = blockIdx.x, size_x = a.vertices[0], size_y = a.vertices[1], row = a.vertices[2] * a.channels;
  const int64_t column = (tile % tiles_z * kTileZ + threadIdx.x % kTileZ) * kSize;  // z and channel
  const int64_t y = tile / tiles_z % tiles_y * kTileY + threadIdx.x / kTileZ;
  if (column >= row || y >= size_y) return;
  const int64_t first = tile / (tiles_z * tiles_y) * kWalk, end = min2(first + kWalk, size_x), plane = size_y * row;
  const bool inside[3][2] = {{}, {y > 0, y + 1 < size_y}, {column >= a.channels, column + a.channels < row}};
  const int64_t stride[3] = {plane, row, a.channels};
  for (int64_t x = first; x < end; ++x) {
    const int64_t i = x * plane + y * row + column;
    Pack<T, kSize> grad = load<kSize>(a.grad + i), sum = {};
    if (a.touched_only && is_zero(grad)) continue;
    const Pack<T, kSize> own = load<kSize>(a.grid + i);
    // All six are on their way together; where there is no neighbour, the vertex itself is read instead.
    Pack<T, kSize> other[3][2];
    bool there[3][2];
#pragma unroll
    for (int axis = 2; axis >= 0; --axis)
#pragma unroll
      for (int up = 0; up < 2; ++up) {
        there[axis][up] = axis ? inside[axis][up] : up ? x + 1 < size_x : x > 0;
        other[axis][up] = load<kSize>(a.grid + i + (there[axis][up] ? up ? stride[axis] : -stride[axis] : 0));
      }
#pragma unroll
    for (int axis = 2; axis >= 0; --axis)
#pragma unroll
      for (int up = 0; up < 2; ++up)
#pragma unroll
        for (int c = 0; c < kSize; ++c)
          sum.v[c] += there[axis][up] ? variation_slope(own.v[c], other[axis][up].v[c]) : T(0);
#pragma unroll
    for (int c = 0; c < kSize; ++c)
      if (!a.touched_only || grad.v[c] != T(0)) grad.v[c] += a.weight * sum.v[c];
    store(a.grad + i, grad);
  }
}

}  // namespace

template <class T>
void total_variation(const TotalVariationArgs<T>& a, Stream stream) {
  if (a.channels % kPackSize<T> != 0 || !is_pack_aligned(a.grid) || !is_pack_aligned(a.grad))
    return cuda_plain::total_variation(a, stream);
  const auto parts = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const int64_t tiles_z = parts(a.vertices[2] * a.channels / kPackSize<T>, kTileZ),
                tiles_y = parts(a.vertices[1], kTileY), tiles = tiles_z * tiles_y * parts(a.vertices[0], kWalk);
  launch(total_variation_kernel<T>, tiles * kThreads, "total_variation_grad", stream, a, tiles_z, tiles_y);
}

NERF_INSTANTIATE(total_variation, TotalVariationArgs)

}  // namespace nerf::cuda
