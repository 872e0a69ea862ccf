// shading_inputs on CUDA: forward the portable body. Backward 16 lanes take a pixel, as many as a pixel has features most of
// the time: a thread of a pixel alone reads from rows far apart, and waits for one number after the other.
#include "../portable/shading_inputs.h"
#include "warp.cuh"

namespace nerf::cuda {
namespace {

constexpr int kLanes = 16;  // of a pixel

template <class T>
__global__ void __launch_bounds__(kThreads) shading_inputs_backward_kernel(ShadingInputsArgs<T> a) {
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x, p = thread / kLanes;
  const bool there = p < a.pixels;
  const int lane = threadIdx.x % kLanes;
  const T opacity = there ? a.opacity[p] : T(0), m = there ? bounded_opacity(a, p) : T(1);
  const T* grad = a.grad_out + p * a.width;
  T along = T(0);
  for (int64_t c = lane; there && c < a.channels; c += kLanes) {
    const int64_t i = p * a.channels + c;
    a.grad_values[i] = opacity == T(0) ? T(0) : grad[c] / m;
    along += grad[c] * (a.values[i] / m);
  }
  along = warp_sum<1, kLanes>(along);
  if (there && lane == 0) a.grad_opacity[p] = opacity < a.min_opacity ? T(0) : -along / m;
}

}  // namespace

template <class T>
void shading_inputs(const ShadingInputsArgs<T>& a, Stream stream) {
  cuda_plain::shading_inputs(a, stream);
}

template <class T>
void shading_inputs_backward(const ShadingInputsArgs<T>& a, Stream stream) {
  launch(shading_inputs_backward_kernel<T>, a.pixels * kLanes, "shading_inputs_backward", stream, a);
}

NERF_INSTANTIATE(shading_inputs, ShadingInputsArgs)
NERF_INSTANTIATE(shading_inputs_backward, ShadingInputsArgs)

}  // namespace nerf::cuda
