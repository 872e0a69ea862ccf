// The adjoint of interpolate_trilinear in one order on CUDA, in float: rows of whole 16 bytes go four numbers at a time.
//
// A color's points lie between two bounds that only the device knows: as many blocks as the chip holds stride over them,
// so that no thread is launched for points of another color. A thread that finds no beginning of a cell leaves at once.
// The plain kernels' grid of all points for each color took eight times the launches' worth of threads.
#include "../portable/trilinear_order.h"
#include "pack.cuh"

namespace nerf {

// Four numbers of a row.
struct alignas(16) Quad {
  float x, y, z, w;
};

HOST_DEVICE bool is_zero(const Quad& q) { return q.x == 0 && q.y == 0 && q.z == 0 && q.w == 0; }
HOST_DEVICE void multiply_add(float weight, const Quad& value, Quad& sum) {
  sum.x += weight * value.x;
  sum.y += weight * value.y;
  sum.z += weight * value.z;
  sum.w += weight * value.w;
}

namespace cuda {
namespace {

constexpr const char* kName = "interpolate_trilinear_grad: in order";
constexpr int kCellBlock = 128;

// Where a thread waits for memory, and half of them find no beginning, as many as registers allow.
template <class V>
constexpr int kBlocksPerProcessor = sizeof(V) > 4 ? 8 : 12;

template <class V, class Cell>
__global__ void __launch_bounds__(kCellBlock, kBlocksPerProcessor<V>)
    add_cells_kernel(TrilinearOrderArgs<float> a, int color, int width) {
  const int64_t first = a.bounds[color], count = (a.bounds[color + 1] - first) * width;
  for (int64_t i = int64_t(blockIdx.x) * kCellBlock + threadIdx.x; i < count; i += int64_t(gridDim.x) * kCellBlock) {
    const Place p = place(i, width);
    OrderedWalk<V, Cell, float> walk(a, width, p.column);
    if (walk.begins(first + p.row)) walk.add(first + p.row);
  }
}

template <class V, class Cell>
void add_rows(const TrilinearOrderArgs<float>& a, int64_t width, Stream stream) {
  for_each(a.points.num_points + 1, kName, stream, [a] __device__(int64_t i) { find_bounds<Cell>(a, i); });
  for_each(a.cuts() * width, kName, stream, [a, width] __device__(int64_t i) {
    const Place p = place(i, width);
    OrderedWalk<V, Cell, float>(a, width, p.column).keep(p.row);
  });
  const int64_t all = min2(a.points.num_points * width, processors(stream) * kBlocksPerProcessor<V> * kCellBlock);
  for (int color = 0; color < kParities; ++color)
    launch<kCellBlock>(add_cells_kernel<V, Cell>, all, kName, stream, a, color, int(width));
}

template <class V>
void add_rows(const TrilinearOrderArgs<float>& a, int64_t width, Stream stream) {
  if (a.narrow) add_rows<V, int32_t>(a, width, stream);
  else add_rows<V, int64_t>(a, width, stream);
}

}  // namespace

template <class T>
void trilinear_cells(const TrilinearOrderArgs<T>& a, Stream stream) {
  cuda_plain::trilinear_cells(a, stream);
}

template <>
void trilinear_in_order(const TrilinearOrderArgs<double>& a, Stream stream) {
  cuda_plain::trilinear_in_order(a, stream);
}

template <>
void trilinear_in_order(const TrilinearOrderArgs<float>& a, Stream stream) {
  const bool quads = a.points.channels % 4 == 0 && is_pack_aligned(a.points.grad_out) &&
                     is_pack_aligned(a.points.grad_grid) && is_pack_aligned(a.partial);
  if (quads) add_rows<Quad>(a, a.points.channels / 4, stream);
  else add_rows<float>(a, a.points.channels, stream);
}

NERF_INSTANTIATE(trilinear_cells, TrilinearOrderArgs)

}  // namespace cuda
}  // namespace nerf
