// interpolate_trilinear on CUDA.
//
// Plain: one thread per point and channel. Fast, for float rows of whole 16 bytes: one thread per point and float4, so
// the threads of a point read and add consecutive 16-byte pieces; from sm_90 on each addition is one 16-byte reduction.
#include "launch.cuh"

namespace nerf::cuda {
namespace {

__device__ void add_float4(float4* target, float4 value) {
#if __CUDA_ARCH__ >= 900
  atomicAdd(target, value);
#else
  float* t = reinterpret_cast<float*>(target);
  atomicAdd(t, value.x);
  atomicAdd(t + 1, value.y);
  atomicAdd(t + 2, value.z);
  atomicAdd(t + 3, value.w);
#endif
}

__device__ void multiply_add(float weight, float4 value, float4& sum) {
  sum.x += weight * value.x;
  sum.y += weight * value.y;
  sum.z += weight * value.z;
  sum.w += weight * value.w;
}

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

template <int kQuads>
__global__ void __launch_bounds__(kThreads) scatter_float4_kernel(TrilinearArgs<float> a, int quads) {
  if (kQuads) quads = kQuads;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, n = i / quads;
  if (n >= a.num_points) return;
  const float4 grad = reinterpret_cast<const float4*>(a.grad_out)[i];
  // Samples that weigh nothing (behind a surface, the unused tail of a batch) are many; they add nothing.
  if (grad.x == 0 && grad.y == 0 && grad.z == 0 && grad.w == 0) return;
  const Stencil<float> s = make_stencil(a.coords + 3 * n, a.vertices);
  float4* target = reinterpret_cast<float4*>(a.grad_grid) + i % quads;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float4 share = {0, 0, 0, 0};
    multiply_add(s.corner_weight(k), grad, share);
    add_float4(target + s.corner_row(k) * quads, share);
  }
}

template <class T>
void trilinear_plain(const TrilinearArgs<T>& a, Stream stream) {
  for_each(a.num_points * a.channels, "interpolate_trilinear", stream, [a] __device__(int64_t i) {
    const int64_t n = i / a.channels, c = i % a.channels;
    const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
    T sum = T(0);
    for (int k = 0; k < 8; ++k) sum += s.corner_weight(k) * a.grid[s.corner_row(k) * a.channels + c];
    a.out[i] = sum;
  });
}

template <class T>
void trilinear_backward_plain(const TrilinearArgs<T>& a, Stream stream) {
  for_each(a.num_points * a.channels, "interpolate_trilinear_backward", stream, [a] __device__(int64_t i) {
    const T grad = a.grad_out[i];
    if (grad == T(0)) return;
    const int64_t n = i / a.channels, c = i % a.channels;
    const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
    for (int k = 0; k < 8; ++k)
      atomicAdd(a.grad_grid + s.corner_row(k) * a.channels + c, s.corner_weight(k) * grad);
  });
}

bool has_whole_quads(int64_t channels) { return channels % 4 == 0; }

}  // namespace

template <>
void trilinear(const TrilinearArgs<double>& a, Stream stream) {
  trilinear_plain(a, stream);
}

template <>
void trilinear(const TrilinearArgs<float>& a, Stream stream) {
  if (!has_whole_quads(a.channels)) return trilinear_plain(a, stream);
  const int quads = int(a.channels / 4);
  const auto kernel = quads == 7   ? gather_float4_kernel<7>
                      : quads == 3 ? gather_float4_kernel<3>
                                   : gather_float4_kernel<0>;
  launch(kernel, a.num_points * quads, "interpolate_trilinear", stream, a, quads);
}

template <class T>
void coordinate_gradients(const TrilinearArgs<T>& a, Stream stream) {
  for_each(a.num_points, "interpolate_trilinear_backward", stream, [a] __device__(int64_t n) {
    const Stencil<T> s = make_stencil(a.coords + 3 * n, a.vertices);
    coordinate_gradient(s, a.grid, a.grad_out + n * a.channels, a.channels, a.grad_coords + 3 * n);
  });
}

template <>
void trilinear_backward(const TrilinearArgs<double>& a, Stream stream) {
  if (a.grad_coords) coordinate_gradients(a, stream);
  if (a.grad_grid) trilinear_backward_plain(a, stream);
}

template <>
void trilinear_backward(const TrilinearArgs<float>& a, Stream stream) {
  if (a.grad_coords) coordinate_gradients(a, stream);
  if (!a.grad_grid) return;
  if (!has_whole_quads(a.channels)) return trilinear_backward_plain(a, stream);
  const int quads = int(a.channels / 4);
  const auto kernel = quads == 7   ? scatter_float4_kernel<7>
                      : quads == 3 ? scatter_float4_kernel<3>
                                   : scatter_float4_kernel<0>;
  launch(kernel, a.num_points * quads, "interpolate_trilinear_backward", stream, a, quads);
}

}  // namespace nerf::cuda
