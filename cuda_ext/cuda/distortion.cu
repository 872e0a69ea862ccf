// distortion_loss on CUDA: one warp per ray and a lane per sample, so that loads are consecutive and a ray of up to 32
// samples takes one round. The weight passed so far and the reach are two warp scans, one fed by the other.
#include "launch.cuh"
#include "warp.cuh"

namespace nerf::cuda {
namespace {

// Rounds of 32 samples, front to back or back to front, and what is carried from one to the next.
template <class T>
struct Sweep {
  T passed = T(0), reach = T(0);

  // Reach of this lane's sample from those before it; gap is the distance to the nearest of them, 0 where there is none.
  __device__ T forward(T weight, T gap, int lane) {
    const T through = sum_up_to(weight, lane), below = __shfl_up_sync(kAllLanes, through, 1);
    const T here = reach + sum_up_to((passed + (lane ? below : T(0))) * gap, lane);
    passed += __shfl_sync(kAllLanes, through, 31);
    reach = __shfl_sync(kAllLanes, here, 31);
    return here;
  }

  // The same from those after it.
  __device__ T backward(T weight, T gap, int lane) {
    const T from = sum_from(weight, lane), above = __shfl_down_sync(kAllLanes, from, 1);
    const T here = reach + sum_from((passed + (lane < 31 ? above : T(0))) * gap, lane);
    passed += __shfl_sync(kAllLanes, from, 0);
    reach = __shfl_sync(kAllLanes, here, 0);
    return here;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) distortion_kernel(DistortionArgs<T> a) {
  const int64_t r = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (r >= a.num_rays) return;
  const int64_t begin = a.ray_offsets[r], end = a.ray_offsets[r + 1];
  Sweep<T> sweep;
  T pairs = T(0), own = T(0);
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t i = first + lane;
    const bool valid = i < end;
    const T weight = valid ? a.weights[i] : T(0);
    pairs += weight * sweep.forward(weight, valid && i > begin ? a.gap(i) : T(0), lane);
    own += weight * weight * (valid ? a.length(i) : T(0));
  }
  const T loss = warp_sum(T(2) * pairs + own / T(3));
  if (lane == 0) a.loss[r] = loss;
}

template <class T>
__global__ void __launch_bounds__(kThreads) distortion_backward_kernel(DistortionArgs<T> a) {
  const int64_t r = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (r >= a.num_rays) return;
  const int64_t begin = a.ray_offsets[r], end = a.ray_offsets[r + 1], last_round = begin + (end - begin - 1) / 32 * 32;
  if (end == begin) return;
  // Both ways cut the ray into the same rounds, so each lane finds what it wrote itself.
  Sweep<T> from_front, from_back;
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t i = first + lane;
    const bool valid = i < end;
    const T reach = from_front.forward(valid ? a.weights[i] : T(0), valid && i > begin ? a.gap(i) : T(0), lane);
    if (valid) a.grad_weights[i] = reach;
  }
  const T grad_loss = a.grad_loss[r];
  for (int64_t first = last_round; first >= begin; first -= 32) {
    const int64_t i = first + lane;
    const bool valid = i < end;
    const T weight = valid ? a.weights[i] : T(0);
    const T reach = from_back.backward(weight, i + 1 < end ? a.gap(i + 1) : T(0), lane);
    if (valid) a.grad_weights[i] = distortion_slope(grad_loss, a.grad_weights[i] + reach, weight, a.length(i));
  }
}

}  // namespace

template <class T>
void distortion(const DistortionArgs<T>& a, Stream stream) {
  launch(distortion_kernel<T>, 32 * a.num_rays, "distortion_loss", stream, a);
}

template <class T>
void distortion_backward(const DistortionArgs<T>& a, Stream stream) {
  launch(distortion_backward_kernel<T>, 32 * a.num_rays, "distortion_loss_backward", stream, a);
}

NERF_INSTANTIATE(distortion, DistortionArgs)
NERF_INSTANTIATE(distortion_backward, DistortionArgs)

}  // namespace nerf::cuda
