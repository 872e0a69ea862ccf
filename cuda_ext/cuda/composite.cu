// composite_rays on CUDA, for common channel counts: one warp per ray and a lane per sample, so that loads are consecutive
// and a ray of up to 32 samples takes one round. Other counts take the plain kernels. Transmittance is exp(-sum of optical
// depths), a warp scan; the gradient's sums over later samples are the same scan from the back.
#include <type_traits>

#include "launch.cuh"
#include "warp.cuh"

namespace nerf::cuda {
namespace {

__device__ float exponential(float x) { return expf(x); }
__device__ double exponential(double x) { return exp(x); }

template <class T, int kChannels>
__global__ void __launch_bounds__(kThreads) composite_kernel(CompositeArgs<T> a) {
  const int64_t r = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (r >= a.num_rays) return;
  const int64_t begin = a.ray_offsets[r], end = a.ray_offsets[r + 1];
  T optical_depth = T(0), opacity = T(0), depth = T(0), sum[kChannels + 1] = {};  // weights alone have no channel
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t i = first + lane;
    const bool valid = i < end;
    const T t_start = valid ? a.t_starts[i] : T(0), t_end = valid ? a.t_ends[i] : T(0);
    const T own = valid ? a.density[i] * (t_end - t_start) : T(0);
    const T through = sum_up_to(own, lane);
    // The lane below holds what lies before this sample; subtracting `own` instead would turn a huge density to 0 or NaN.
    const T below = __shfl_up_sync(kAllLanes, through, 1);
    const T transmittance = exponential(-(optical_depth + (lane ? below : T(0))));
    const T weight = valid && !(transmittance < a.min_transmittance) ? transmittance * opacity_of(own) : T(0);
    if (valid) a.weights[i] = weight;
    opacity += weight;
    depth += weight * (T(0.5) * (t_start + t_end));
    if (weight != T(0))
      for (int c = 0; c < kChannels; ++c) sum[c] += weight * a.values[i * kChannels + c];
    optical_depth += __shfl_sync(kAllLanes, through, 31);
  }
  opacity = warp_sum(opacity);
  depth = warp_sum(depth);
  for (int c = 0; c < kChannels; ++c) {
    sum[c] = warp_sum(sum[c]);
    if (lane == 0) a.out_values[r * kChannels + c] = sum[c];
  }
  if (lane == 0) a.opacity[r] = opacity, a.depth[r] = depth;
}

template <class T, int kChannels>
__global__ void __launch_bounds__(kThreads) composite_backward_kernel(CompositeArgs<T> a) {
  const int64_t r = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (r >= a.num_rays) return;
  const int64_t begin = a.ray_offsets[r], end = a.ray_offsets[r + 1];
  T grad_out[kChannels + 1];
  for (int c = 0; c < kChannels; ++c) grad_out[c] = a.grad_out_values[r * kChannels + c];
  const T grad_opacity = a.grad_opacity[r], grad_depth = a.grad_depth[r];

  // From the front: where the samples that count end, and the transmittance behind them.
  int64_t counted = begin;
  T optical_depth = T(0);
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t i = first + lane;
    const T own = i < end ? a.density[i] * (a.t_ends[i] - a.t_starts[i]) : T(0);
    const T through = sum_up_to(own, lane), below = __shfl_up_sync(kAllLanes, through, 1);
    const T transmittance = exponential(-(optical_depth + (lane ? below : T(0))));
    const bool counts = i < end && !(transmittance < a.min_transmittance);
    const int here = __popc(__ballot_sync(kAllLanes, counts));
    if (here == 0) break;
    counted = first + here;
    optical_depth += __shfl_sync(kAllLanes, through, here - 1);
    if (here < 32) break;
  }
  for (int64_t i = counted + lane; i < end; i += 32) {
    a.grad_density[i] = T(0);
    for (int c = 0; c < kChannels; ++c) a.grad_values[i * kChannels + c] = T(0);
  }

  // From the back, in blocks of 32 samples that end where the counted ones end.
  T after = exponential(-optical_depth), later = T(0);
  for (int64_t last = counted; last > begin; last -= 32) {
    const int64_t i = last - 32 + lane;
    const bool valid = i >= begin;
    T weight = T(0), g = T(0), delta = T(0);
    if (valid) {
      weight = a.weights[i];
      delta = a.t_ends[i] - a.t_starts[i];
      g = a.grad_weights[i] + grad_opacity + grad_depth * (T(0.5) * (a.t_starts[i] + a.t_ends[i]));
      for (int c = 0; c < kChannels; ++c) g += grad_out[c] * a.values[i * kChannels + c];
    }
    const T weight_from = sum_from(weight, lane), later_from = sum_from(weight * g, lane);
    // The lane above holds the sum without this sample, so that the last one sees an exact zero.
    const T weight_above = __shfl_down_sync(kAllLanes, weight_from, 1);
    const T later_above = __shfl_down_sync(kAllLanes, later_from, 1);
    if (valid) {
      const T transmittance_after = after + (lane < 31 ? weight_above : T(0));
      a.grad_density[i] = delta * (transmittance_after * g - (later + (lane < 31 ? later_above : T(0))));
      for (int c = 0; c < kChannels; ++c) a.grad_values[i * kChannels + c] = weight * grad_out[c];
    }
    after += __shfl_sync(kAllLanes, weight_from, 0);
    later += __shfl_sync(kAllLanes, later_from, 0);
  }
}

// body(constant) with the channel count where it has a kernel of its own, else plain(): density looked at alone, colours,
// features.
template <class Body, class Plain>
void with_channels(int64_t channels, const Body& body, const Plain& plain) {
  switch (channels) {
    case 0: return body(std::integral_constant<int, 0>());
    case 3: return body(std::integral_constant<int, 3>());
    case 4: return body(std::integral_constant<int, 4>());
    case 8: return body(std::integral_constant<int, 8>());
    case 12: return body(std::integral_constant<int, 12>());
    case 16: return body(std::integral_constant<int, 16>());
    case 28: return body(std::integral_constant<int, 28>());
    default: return plain();
  }
}

}  // namespace

template <class T>
void composite(const CompositeArgs<T>& a, Stream stream) {
  const auto fast = [&](auto channels) {
    launch(composite_kernel<T, decltype(channels)::value>, 32 * a.num_rays, "composite_rays", stream, a);
  };
  with_channels(a.channels, fast, [&] { cuda_plain::composite(a, stream); });
}

template <class T>
void composite_backward(const CompositeArgs<T>& a, Stream stream) {
  const auto fast = [&](auto channels) {
    launch(composite_backward_kernel<T, decltype(channels)::value>, 32 * a.num_rays, "composite_rays_backward", stream,
           a);
  };
  with_channels(a.channels, fast, [&] { cuda_plain::composite_backward(a, stream); });
}

NERF_INSTANTIATE(composite, CompositeArgs)
NERF_INSTANTIATE(composite_backward, CompositeArgs)

}  // namespace nerf::cuda
