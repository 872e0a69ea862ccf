// interpolate_trilinear on CUDA, in float.
//
// Forward, for rows of whole 16 bytes: one thread per point and float4, so the threads of a point read consecutive pieces.
// Backward: one thread per float4 (or float) of a row and run of consecutive points. Points come in the order of the rays, so
// the next one lies in the same cell or in one beside it: the thread keeps the sums of its cell's eight corners, and when it
// moves on adds to memory only the corners that it leaves behind. From sm_90 on each such addition is one 16-byte reduction.
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
template <int kQuads>
__global__ void __launch_bounds__(kThreads) gather_float4_kernel(TrilinearArgs<float> a, int quads) {
  if (kQuads) quads = kQuads;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, n = i / quads;
  if (n >= a.num_points) return;
  const Stencil<float> s = make_stencil(a.coords + 3 * n, a.vertices);
  const float4* grid = reinterpret_cast<const float4*>(a.grid) + i % quads;
  float4 sum = {0, 0, 0, 0};
#pragma unroll
  for (int k = 0; k < 8; ++k) multiply_add(s.corner_weight(k), __ldg(grid + s.corner_row(k) * quads), sum);
  reinterpret_cast<float4*>(a.out)[i] = sum;
}

constexpr int kRun = 8;  // points per thread: more share more corners, fewer make more threads

// The sums of a cell's eight corners, of one piece V of their rows.
template <class V>
struct CornerSums {
  V* target;      // the piece of row 0
  int64_t width;  // pieces per row
  V sum[8];
  int64_t row = -1;  // of the corner (0, 0, 0); -1: no cell yet

  __device__ void clear() {
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = V{};
  }

  __device__ void write(int k, const int64_t stride[3]) const {
    const int64_t corner = row + (k & 4 ? stride[0] : 0) + (k & 2 ? stride[1] : 0) + (k & 1 ? stride[2] : 0);
    add(target + corner * width, sum[k]);
  }

  __device__ void write_all(const int64_t stride[3]) const {
    if (row < 0) return;
#pragma unroll
    for (int k = 0; k < 8; ++k) write(k, stride);
  }

  // One cell up (kStep 1) or down (-1) on the axis of this corner bit: four corners are left, four stay.
  template <int kBit, int kStep>
  __device__ void move(const int64_t stride[3]) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (k & kBit) continue;
      constexpr int kUp = kBit;
      const int leaving = kStep > 0 ? k : k | kUp, staying = kStep > 0 ? k | kUp : k;
      write(leaving, stride);
      sum[leaving] = sum[staying];
      sum[staying] = V{};
    }
    row += kStep * (kBit == 4 ? stride[0] : kBit == 2 ? stride[1] : stride[2]);
  }

  template <int kBit>
  __device__ void move_by(int64_t cells, const int64_t stride[3]) {
    if (cells == 1) move<kBit, 1>(stride);
    if (cells == -1) move<kBit, -1>(stride);
  }
};

// kWidth: pieces V per row where known at compile time, else 0.
template <class V, int kWidth>
__global__ void __launch_bounds__(kThreads) scatter_runs_kernel(TrilinearArgs<float> a, int width) {
  if (kWidth) width = kWidth;
  const Place place = cuda::place(int64_t(blockIdx.x) * kThreads + threadIdx.x, width);
  const int64_t first = place.row * kRun, end = min2(first + kRun, a.num_points);
  if (first >= a.num_points) return;
  const V* grad_out = reinterpret_cast<const V*>(a.grad_out) + place.column;
  CornerSums<V> corners = {reinterpret_cast<V*>(a.grad_grid) + place.column, width};
  corners.clear();
  int64_t cell[3] = {0, 0, 0}, stride[3];
  for (int64_t n = first; n < end; ++n) {
    const V grad = grad_out[n * width];
    // Samples that weigh nothing (behind a surface, the unused tail of a batch) are many; they add nothing.
    if (is_zero(grad)) continue;
    const Stencil<float> s = make_stencil(a.coords + 3 * n, a.vertices);
    for (int axis = 0; axis < 3; ++axis) stride[axis] = s.stride[axis];
    if (s.row != corners.row) {
      int64_t by[3];
      bool near = corners.row >= 0;
      for (int axis = 0; axis < 3; ++axis) {
        const int64_t now = cell_of(clamp(a.coords[3 * n + axis], 0.0f, float(a.vertices[axis] - 1)), a.vertices[axis]);
        by[axis] = now - cell[axis];
        cell[axis] = now;
        near = near && by[axis] >= -1 && by[axis] <= 1;
      }
      if (near) {
        corners.template move_by<4>(by[0], stride);
        corners.template move_by<2>(by[1], stride);
        corners.template move_by<1>(by[2], stride);
      } else {
        corners.write_all(stride);
        corners.clear();
        corners.row = s.row;
      }
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) multiply_add(s.corner_weight(k), grad, corners.sum[k]);
  }
  corners.write_all(stride);
}

template <class V, int kWidth>
void scatter_runs(const TrilinearArgs<float>& a, int64_t width, Stream stream) {
  const int64_t runs = (a.num_points + kRun - 1) / kRun;
  launch(scatter_runs_kernel<V, kWidth>, runs * width, "interpolate_trilinear_backward", stream, a, int(width));
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
  const int quads = int(a.channels / 4);
  const auto kernel = quads == 7   ? gather_float4_kernel<7>
                      : quads == 3 ? gather_float4_kernel<3>
                                   : gather_float4_kernel<0>;
  launch(kernel, a.num_points * quads, "interpolate_trilinear", stream, a, quads);
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
  if (!has_whole_quads(a.channels, a.grad_grid) || !has_whole_quads(a.channels, a.grad_out))
    return a.channels == 1 ? scatter_runs<float, 1>(a, 1, stream) : scatter_runs<float, 0>(a, a.channels, stream);
  switch (a.channels / 4) {
    case 3: return scatter_runs<float4, 3>(a, 3, stream);
    case 7: return scatter_runs<float4, 7>(a, 7, stream);
    default: return scatter_runs<float4, 0>(a, a.channels / 4, stream);
  }
}

}  // namespace nerf::cuda
