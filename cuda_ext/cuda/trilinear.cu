// interpolate_trilinear on CUDA, in float.
//
// Forward, for rows of whole 16 bytes: one thread per point and float4, so the threads of a point read consecutive pieces.
// Backward: points come in the order of the rays, so the next one lies in the same cell or in one beside it. A thread
// walks a run of consecutive points with one float4 (or float) of a row and keeps sums of vertices in registers; when
// the cell of the next point has another vertex in a sum's place, the old one is added to memory. From sm_90 on each
// such addition is one 16-byte reduction. Of the eight corners of any cell each has another combination of even and odd
// numbers on the three axes: that is a sum's place, and it holds on to its vertex for as long as the cell has it. Two
// threads share a cell, one with the corners of even z, one with those of odd z. These lie beside each other in memory,
// so that the two write to the same lines at once: where points are random, and sums are never kept, that is what
// counts.
#include "../math/channels.h"
#include "../portable/trilinear.h"
#include "float4.cuh"
#include "launch.cuh"

namespace nerf::cuda {
namespace {

__device__ void multiply_add(float weight, float value, float& sum) { sum += weight * value; }

__device__ void multiply_add(float weight, float4 value, float4& sum) {
  sum.x += weight * value.x;
  sum.y += weight * value.y;
  sum.z += weight * value.z;
  sum.w += weight * value.w;
}

__device__ bool is_zero(float value) { return value == 0; }
__device__ bool is_zero(float4 value) { return value.x == 0 && value.y == 0 && value.z == 0 && value.w == 0; }

__device__ void add(float* target, float value) { atomicAdd(target, value); }
__device__ void add(float4* target, float4 value) { add_float4(target, value); }

// kQuads: float4 per row where known at compile time (it turns a division into a multiplication), else 0.
template <int kQuads, class Rows>
__global__ void __launch_bounds__(kThreads) gather_float4_kernel(TrilinearArgs<float> a, int quads, Rows rows) {
  if (kQuads) quads = kQuads;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, n = i / quads;
  if (n >= a.num_points) return;
  const Stencil<float> s = make_stencil(a.coords + 3 * n, a.vertices, rows);
  const float4* grid = reinterpret_cast<const float4*>(a.grid) + i % quads;
  float4 sum = {0, 0, 0, 0};
  int64_t row[8];
  corner_rows(s, rows, row);
#pragma unroll
  for (int k = 0; k < 8; ++k)
    if (!Rows::kSparse || row[k] >= 0) multiply_add(s.corner_weight(k), __ldg(grid + row[k] * quads), sum);
  reinterpret_cast<float4*>(a.out)[i] = sum;
}

constexpr int kRun = 8;  // points per thread: more share more corners, fewer make more threads

// On one axis of a point's cell: the vertex with an even number and the one with an odd number, and their weights.
struct AxisCorners {
  int vertex[2];
  float weight[2];
};

__device__ AxisCorners axis_corners(float coord, int64_t vertices) {
  const AxisPlace<float> place = axis_place(coord, vertices);
  const int cell = int(place.cell), above = min2(cell + 1, int(vertices) - 1);  // the same in a grid of one vertex
  const bool odd = cell & 1;
  const float low = 1 - place.fraction, high = place.fraction;
  return {{odd ? above : cell, odd ? cell : above}, {odd ? high : low, odd ? low : high}};
}

// A point and its gradient, for one piece V of a row.
template <class V>
struct Incoming {
  float coord[3];
  V grad;
};

template <class V>
__device__ Incoming<V> incoming(const TrilinearArgs<float>& a, int64_t n, int64_t width, int64_t piece) {
  const float* coord = a.coords + 3 * n;
  return {{__ldg(coord), __ldg(coord + 1), __ldg(coord + 2)},
          __ldg(reinterpret_cast<const V*>(a.grad_out) + n * width + piece)};
}

// kWidth: pieces V per row where known at compile time, else 0.
template <class V, int kWidth, class Rows>
__global__ void __launch_bounds__(kThreads, 3) scatter_runs_kernel(TrilinearArgs<float> a, int width, Rows rows) {
  if (kWidth) width = kWidth;
  const Place place = nerf::place(int64_t(blockIdx.x) * kThreads + threadIdx.x, 2 * width);
  const int64_t first = place.row * kRun, end = min2(first + kRun, a.num_points);
  if (first >= a.num_points) return;
  const int odd_z = place.column >= unsigned(width), piece = int(place.column) - odd_z * width;
  V* target = reinterpret_cast<V*>(a.grad_grid) + piece;
  V sum[2][2] = {};  // of the vertices (x[i], y[j], z)
  int x[2] = {0, 0}, y[2] = {0, 0}, z = 0;
  const auto write = [&](int i, int j) {
    if (is_zero(sum[i][j])) return;
    const int64_t row = rows.row((x[i] * a.vertices[1] + y[j]) * rows.pitch(a.vertices[2]) + z);
    if (!Rows::kSparse || row >= 0) add(target + row * width, sum[i][j]);
  };
  Incoming<V> next = incoming<V>(a, first, width, piece);
  for (int64_t n = first; n < end; ++n) {
    const Incoming<V> now = next;
    if (n + 1 < end) next = incoming<V>(a, n + 1, width, piece);  // on its way while this one is added
    // Samples that weigh nothing (behind a surface, the unused tail of a batch) are many; they add nothing.
    if (is_zero(now.grad)) continue;
    const AxisCorners on_x = axis_corners(now.coord[0], a.vertices[0]);
    const AxisCorners on_y = axis_corners(now.coord[1], a.vertices[1]);
    const AxisCorners on_z = axis_corners(now.coord[2], a.vertices[2]);
    const int z_now = odd_z ? on_z.vertex[1] : on_z.vertex[0];
    const float weight_z = odd_z ? on_z.weight[1] : on_z.weight[0];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (x[i] != on_x.vertex[i] || y[j] != on_y.vertex[j] || z != z_now) {
          write(i, j);
          sum[i][j] = V{};
        }
        multiply_add(on_x.weight[i] * on_y.weight[j] * weight_z, now.grad, sum[i][j]);
      }
    x[0] = on_x.vertex[0], x[1] = on_x.vertex[1], y[0] = on_y.vertex[0], y[1] = on_y.vertex[1], z = z_now;
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) write(i, j);
}

template <int kQuads, class Rows>
void gather_quads(const TrilinearArgs<float>& a, const Rows& rows, Stream stream) {
  const int quads = int(a.channels / 4);
  launch(gather_float4_kernel<kQuads, Rows>, a.num_points * quads, "interpolate_trilinear", stream, a, quads, rows);
}

template <class V, int kWidth>
void scatter_runs(const TrilinearArgs<float>& a, int64_t width, Stream stream) {
  const int64_t threads = (a.num_points + kRun - 1) / kRun * 2 * width;
  const auto scatter = [&](auto rows) {
    launch(scatter_runs_kernel<V, kWidth, decltype(rows)>, threads, "interpolate_trilinear_backward", stream, a,
           int(width), rows);
  };
  if (a.table.words) scatter(a.table.sparse());
  else scatter(DenseRows());
}

bool has_whole_quads(int64_t channels, const void* data) {
  return channels % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

}  // namespace

template <>
void trilinear(const TrilinearArgs<double>& a, Stream stream) {
  cuda_plain::trilinear(a, stream);
}

template <>
void trilinear(const TrilinearArgs<float>& a, Stream stream) {
  if (!has_whole_quads(a.channels, a.grid)) return cuda_plain::trilinear(a, stream);
  const auto gather = [&](auto rows) {
    const auto known = [&](auto channels) { gather_quads<channels.value / 4>(a, rows, stream); };
    with_channels(CommonChannels(), a.channels, known, [&] { gather_quads<0>(a, rows, stream); });
  };
  if (a.table.words) gather(a.table.sparse());
  else gather(DenseRows());
}

template <>
void trilinear_backward(const TrilinearArgs<double>& a, Stream stream) {
  cuda_plain::trilinear_backward(a, stream);
}

template <>
void trilinear_backward(const TrilinearArgs<float>& a, Stream stream) {
  if (a.grad_coords) {
    TrilinearArgs<float> coords_alone = a;
    coords_alone.grad_grid = nullptr;
    cuda_plain::trilinear_backward(coords_alone, stream);
  }
  if (!a.grad_grid || a.channels == 0) return;
  if (max2(max2(a.vertices[0], a.vertices[1]), a.vertices[2]) > INT32_MAX) {  // numbers of vertices are int there
    TrilinearArgs<float> grid_alone = a;
    grid_alone.grad_coords = nullptr;
    return cuda_plain::trilinear_backward(grid_alone, stream);
  }
  if (!has_whole_quads(a.channels, a.grad_grid) || !has_whole_quads(a.channels, a.grad_out))
    return a.channels == 1 ? scatter_runs<float, 1>(a, 1, stream) : scatter_runs<float, 0>(a, a.channels, stream);
  const auto known = [&](auto channels) { scatter_runs<float4, channels.value / 4>(a, channels.value / 4, stream); };
  with_channels(CommonChannels(), a.channels, known, [&] { scatter_runs<float4, 0>(a, a.channels / 4, stream); });
}

}  // namespace nerf::cuda
