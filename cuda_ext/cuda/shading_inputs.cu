// shading_inputs on CUDA. Forward a thread takes a pack of four numbers, in a batch of which every row is written. Of a
// picture two thirds are not: there a warp takes 32 pixels and shares out the packs of those that have a row, as threads
// would be started to find that there is nothing to do. Backward 16 lanes take a pixel, as many as a pixel has features most of the time: a thread of a pixel alone
// reads from rows far apart, and waits for one number after the other.
#include "../portable/shading_inputs.h"
#include "warp.cuh"

namespace nerf::cuda {
namespace {

constexpr int kLanes = 16;  // of a pixel, backward

template <class T>
__global__ void __launch_bounds__(kThreads) rows_of_some_kernel(ShadingInputsArgs<T> a) {
  __shared__ uint8_t lanes[kThreads / 32][32];  // of the pixels with a row, one after the other
  uint8_t* const order = lanes[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x, first = thread - lane;
  const bool written = thread < a.pixels && a.opacity[thread] != T(0);
  const unsigned rows = __ballot_sync(kAllLanes, written);
  if (written) order[__popc(rows & ((1u << lane) - 1))] = uint8_t(lane);
  __syncwarp();
  const unsigned packs = unsigned(a.width + kInputsAtOnce - 1) / kInputsAtOnce, count = __popc(rows) * packs;
#pragma unroll 2
  for (unsigned k = lane; k < count; k += 32)
    write_shading_inputs(a, first + order[k / packs], kInputsAtOnce * (k % packs));
}

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
  if (a.write_empty) return cuda_plain::shading_inputs(a, stream);
  launch(rows_of_some_kernel<T>, (a.pixels + 31) / 32 * 32, "shading_inputs", stream, a);
}

template <class T>
void shading_inputs_backward(const ShadingInputsArgs<T>& a, Stream stream) {
  launch(shading_inputs_backward_kernel<T>, a.pixels * kLanes, "shading_inputs_backward", stream, a);
}

NERF_INSTANTIATE(shading_inputs, ShadingInputsArgs)
NERF_INSTANTIATE(shading_inputs_backward, ShadingInputsArgs)

}  // namespace nerf::cuda
