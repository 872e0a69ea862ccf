// interpolate_trilinear on CUDA, for float rows of whole 16 bytes: one thread per point and float4, so the threads of a
// point read and add consecutive 16-byte pieces; from sm_90 on each addition is one 16-byte reduction. Other rows, and
// the gradient of coords, take the plain kernels.
#include "float4.cuh"
#include "launch.cuh"

namespace nerf::cuda {
namespace {

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

bool has_whole_quads(int64_t channels) { return channels % 4 == 0; }

}  // namespace

template <>
void trilinear(const TrilinearArgs<double>& a, Stream stream) {
  cuda_plain::trilinear(a, stream);
}

template <>
void trilinear(const TrilinearArgs<float>& a, Stream stream) {
  if (!has_whole_quads(a.channels)) return cuda_plain::trilinear(a, stream);
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
  if (!a.grad_grid || !has_whole_quads(a.channels)) return cuda_plain::trilinear_backward(a, stream);
  if (a.grad_coords) {
    TrilinearArgs<float> coords_alone = a;
    coords_alone.grad_grid = nullptr;
    cuda_plain::trilinear_backward(coords_alone, stream);
  }
  const int quads = int(a.channels / 4);
  const auto kernel = quads == 7   ? scatter_float4_kernel<7>
                      : quads == 3 ? scatter_float4_kernel<3>
                                   : scatter_float4_kernel<0>;
  launch(kernel, a.num_points * quads, "interpolate_trilinear_backward", stream, a, quads);
}

}  // namespace nerf::cuda
