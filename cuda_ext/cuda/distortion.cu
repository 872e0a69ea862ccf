// distortion_loss on CUDA: one warp per ray, or eight lanes where rays are many and short, and a lane per sample, so that
// loads are consecutive and most rays take one or two rounds. The weight passed so far and the reach are two scans over
// lanes, one fed by the other. All lanes of a warp go round until the last of its rays has ended.
#include "../portable/distortion.h"
#include "launch.cuh"
#include "warp.cuh"

namespace nerf::cuda {
namespace {

// Rounds of as many samples as lanes, front to back or back to front, and what is carried from one to the next.
template <class T, int kGroup>
struct Sweep {
  T passed = T(0), reach = T(0);

  // Reach of this lane's sample from those before it; gap is the distance to the nearest of them, 0 where there is none.
  __device__ T forward(T weight, T gap, int lane) {
    const T through = sum_up_to<1, kGroup>(weight, lane), below = __shfl_up_sync(kAllLanes, through, 1, kGroup);
    const T here = reach + sum_up_to<1, kGroup>((passed + (lane ? below : T(0))) * gap, lane);
    passed += __shfl_sync(kAllLanes, through, kGroup - 1, kGroup);
    reach = __shfl_sync(kAllLanes, here, kGroup - 1, kGroup);
    return here;
  }

  // The same from those after it.
  __device__ T backward(T weight, T gap, int lane) {
    const T from = sum_from<kGroup>(weight, lane), above = __shfl_down_sync(kAllLanes, from, 1, kGroup);
    const T here = reach + sum_from<kGroup>((passed + (lane < kGroup - 1 ? above : T(0))) * gap, lane);
    passed += __shfl_sync(kAllLanes, from, 0, kGroup);
    reach = __shfl_sync(kAllLanes, here, 0, kGroup);
    return here;
  }
};

template <class T, int kGroup>
__global__ void __launch_bounds__(kThreads) distortion_kernel(DistortionArgs<T> a) {
  const int64_t r = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kGroup;
  const int lane = threadIdx.x % kGroup;
  const bool there = r < a.num_rays;
  const int64_t begin = there ? a.offset(r) : 0, end = there ? a.offset(r + 1) : 0;
  Sweep<T, kGroup> sweep;
  T pairs = T(0), own = T(0);
  for (int64_t first = begin; __any_sync(kAllLanes, first < end); first += kGroup) {
    const int64_t i = first + lane;
    const bool valid = i < end;
    const T weight = valid ? a.weights[i] : T(0);
    pairs += weight * sweep.forward(weight, valid && i > begin ? a.gap(i) : T(0), lane);
    own += weight * weight * (valid ? a.length(i) : T(0));
  }
  const T loss = warp_sum<1, kGroup>(T(2) * pairs + own / T(3));
  if (there && lane == 0) a.loss[r] = loss;
}

template <class T, int kGroup>
__global__ void __launch_bounds__(kThreads) distortion_backward_kernel(DistortionArgs<T> a) {
  const int64_t r = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kGroup;
  const int lane = threadIdx.x % kGroup;
  const bool there = r < a.num_rays;
  const int64_t begin = there ? a.offset(r) : 0, end = there ? a.offset(r + 1) : 0;
  // Both ways cut the ray into the same rounds, so each lane finds what it wrote itself.
  Sweep<T, kGroup> from_front, from_back;
  for (int64_t first = begin; __any_sync(kAllLanes, first < end); first += kGroup) {
    const int64_t i = first + lane;
    const bool valid = i < end;
    const T reach = from_front.forward(valid ? a.weights[i] : T(0), valid && i > begin ? a.gap(i) : T(0), lane);
    if (valid) a.grad_weights[i] = reach;
  }
  const T grad_loss = there ? a.grad_loss[r] : T(0);
  const int64_t last_round = end > begin ? begin + (end - begin - 1) / kGroup * kGroup : begin - kGroup;
  for (int64_t first = last_round; __any_sync(kAllLanes, first >= begin); first -= kGroup) {
    const int64_t i = first + lane;
    const bool valid = first >= begin && i < end;
    const T weight = valid ? a.weights[i] : T(0);
    const T reach = from_back.backward(weight, first >= begin && i + 1 < end ? a.gap(i + 1) : T(0), lane);
    if (valid) a.grad_weights[i] = distortion_slope(grad_loss, a.grad_weights[i] + reach, weight, a.length(i));
  }
}

}  // namespace

template <class T>
void distortion(const DistortionArgs<T>& a, Stream stream) {
  if (are_short(a.num_samples, a.num_rays))
    return launch(distortion_kernel<T, kShortRay>, kShortRay * a.num_rays, "distortion_loss", stream, a);
  launch(distortion_kernel<T, 32>, 32 * a.num_rays, "distortion_loss", stream, a);
}

template <class T>
void distortion_backward(const DistortionArgs<T>& a, Stream stream) {
  const char* name = "distortion_loss_backward";
  if (are_short(a.num_samples, a.num_rays))
    return launch(distortion_backward_kernel<T, kShortRay>, kShortRay * a.num_rays, name, stream, a);
  launch(distortion_backward_kernel<T, 32>, 32 * a.num_rays, name, stream, a);
}

NERF_INSTANTIATE(distortion, DistortionArgs)
NERF_INSTANTIATE(distortion_backward, DistortionArgs)

}  // namespace nerf::cuda
