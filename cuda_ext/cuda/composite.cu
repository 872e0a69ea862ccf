// composite_rays on CUDA, for common channel counts: one warp per ray and a lane per sample, so that loads are consecutive
// and a ray of up to 32 samples takes one round. Other counts take the plain kernels. Transmittance is exp(-sum of optical
// depths), a warp scan; the gradient's sums over later samples are the same scan from the back.
//
// Rows of values are longer than a lane should read alone: the lanes of a warp would meet 32 rows with every load.
// Where rows are whole packs of 16 bytes, neighbouring lanes read the packs of one row, a few rows at a time, and
// shuffles carry weights and dot products between them and the lane of the sample.
#include <type_traits>

#include "pack.cuh"
#include "warp.cuh"

namespace nerf::cuda {
namespace {

__device__ float exponential(float x) { return expf(x); }
__device__ double exponential(double x) { return exp(x); }

constexpr int power_of_two_from(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

// How a warp shares the rows of its 32 samples: kLanes lanes read one row, 32 / kLanes rows at a time, kLanes times.
template <class T, int kChannels>
struct Sharing {
  static constexpr bool kWhole = kChannels > 0 && kChannels % kPackSize<T> == 0;
  static constexpr int kSize = kWhole ? kPackSize<T> : 1, kPacks = kChannels / kSize;
  static constexpr int kLanes = kWhole ? power_of_two_from(kPacks) : 1;
  static constexpr int kEach = kWhole ? 1 : kPacks;  // packs of a row for each of its lanes
  static constexpr int kRows = 32 / kLanes;
};

// Clears packs first, first + step, ... before end.
template <int kSize, class T>
__device__ void clear_packs(T* numbers, int64_t first, int64_t end, int64_t step) {
  for (int64_t k = first; k < end; k += step) store(numbers + k * kSize, Pack<T, kSize>{});
}

template <class T, int kChannels>
__device__ void composite_by_warp(const CompositeArgs<T>& a, int64_t r, int lane) {
  using S = Sharing<T, kChannels>;
  const int64_t begin = a.ray_offsets[r], end = a.ray_offsets[r + 1];
  T optical_depth = T(0), opacity = T(0), depth = T(0);
  Pack<T, S::kSize> sum[S::kEach + 1] = {};  // weights alone have no channel
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
#pragma unroll
    for (int turn = 0; turn < S::kLanes; ++turn) {
      const int sample = turn * S::kRows + lane / S::kLanes;
      const T share = S::kLanes == 1 ? weight : __shfl_sync(kAllLanes, weight, sample);
      if (share == T(0)) continue;
#pragma unroll
      for (int e = 0; e < S::kEach; ++e) {
        const int p = lane % S::kLanes + e;
        if (p >= S::kPacks) continue;
        const auto values = load<S::kSize>(a.values + (first + sample) * kChannels + p * S::kSize);
        for (int c = 0; c < S::kSize; ++c) sum[e].v[c] += share * values.v[c];
      }
    }
    optical_depth += __shfl_sync(kAllLanes, through, 31);
  }
  opacity = warp_sum(opacity);
  depth = warp_sum(depth);
  for (int e = 0; e < S::kEach; ++e) {
    for (int c = 0; c < S::kSize; ++c)
      for (int distance = S::kLanes; distance < 32; distance *= 2)
        sum[e].v[c] += __shfl_xor_sync(kAllLanes, sum[e].v[c], distance);
    if (lane < S::kLanes && lane + e < S::kPacks) store(a.out_values + r * kChannels + (lane + e) * S::kSize, sum[e]);
  }
  if (lane == 0) a.opacity[r] = opacity, a.depth[r] = depth;
}

template <class T, int kChannels>
__global__ void __launch_bounds__(kThreads) composite_kernel(CompositeArgs<T> a) {
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x, owned = a.ray_offsets[a.num_rays];
  if (thread / 32 < a.num_rays) composite_by_warp<T, kChannels>(a, thread / 32, thread % 32);
  clear_packs<1>(a.weights, owned + thread, a.num_samples, int64_t(gridDim.x) * kThreads);
}

template <class T, int kChannels>
__device__ void composite_backward_by_warp(const CompositeArgs<T>& a, int64_t r, int lane) {
  using S = Sharing<T, kChannels>;
  const int64_t begin = a.ray_offsets[r], end = a.ray_offsets[r + 1];
  Pack<T, S::kSize> grad_out[S::kEach + 1] = {};  // this lane's packs of a row
#pragma unroll
  for (int e = 0; e < S::kEach; ++e)
    if (lane % S::kLanes + e < S::kPacks)
      grad_out[e] = load<S::kSize>(a.grad_out_values + r * kChannels + (lane % S::kLanes + e) * S::kSize);
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
  clear_packs<1>(a.grad_density, counted + lane, end, 32);
  clear_packs<S::kSize>(a.grad_values, counted * S::kPacks + lane, end * S::kPacks, 32);

  // From the back, in blocks of 32 samples that end where the counted ones end.
  T after = exponential(-optical_depth), later = T(0);
  for (int64_t last = counted; last > begin; last -= 32) {
    const int64_t first = last - 32, i = first + lane;
    const bool valid = i >= begin;
    T weight = T(0), g = T(0), delta = T(0);
    if (valid) {
      weight = a.weights[i];
      delta = a.t_ends[i] - a.t_starts[i];
      g = a.grad_weights[i] + grad_opacity + grad_depth * (T(0.5) * (a.t_starts[i] + a.t_ends[i]));
    }
#pragma unroll
    for (int turn = 0; turn < S::kLanes; ++turn) {
      const int64_t row = first + turn * S::kRows + lane / S::kLanes;
      T dot = T(0);
#pragma unroll
      for (int e = 0; e < S::kEach; ++e) {
        const int p = lane % S::kLanes + e;
        if (row < begin || p >= S::kPacks) continue;
        const auto values = load<S::kSize>(a.values + row * kChannels + p * S::kSize);
        for (int c = 0; c < S::kSize; ++c) dot += grad_out[e].v[c] * values.v[c];
      }
      for (int distance = 1; distance < S::kLanes; distance *= 2) dot += __shfl_xor_sync(kAllLanes, dot, distance);
      if (S::kLanes > 1) dot = __shfl_sync(kAllLanes, dot, lane % S::kRows * S::kLanes);
      if (valid && lane / S::kRows == turn) g += dot;
    }
    const T weight_from = sum_from(weight, lane), later_from = sum_from(weight * g, lane);
    // The lane above holds the sum without this sample, so that the last one sees an exact zero.
    const T weight_above = __shfl_down_sync(kAllLanes, weight_from, 1);
    const T later_above = __shfl_down_sync(kAllLanes, later_from, 1);
    if (valid) {
      const T transmittance_after = after + (lane < 31 ? weight_above : T(0));
      a.grad_density[i] = delta * (transmittance_after * g - (later + (lane < 31 ? later_above : T(0))));
    }
#pragma unroll
    for (int turn = 0; turn < S::kLanes; ++turn) {
      const int sample = turn * S::kRows + lane / S::kLanes;
      const T share = S::kLanes == 1 ? weight : __shfl_sync(kAllLanes, weight, sample);
      for (int e = 0; e < S::kEach; ++e) {
        const int p = lane % S::kLanes + e;
        if (first + sample < begin || p >= S::kPacks) continue;
        Pack<T, S::kSize> grad;
        for (int c = 0; c < S::kSize; ++c) grad.v[c] = share * grad_out[e].v[c];
        store(a.grad_values + (first + sample) * kChannels + p * S::kSize, grad);
      }
    }
    after += __shfl_sync(kAllLanes, weight_from, 0);
    later += __shfl_sync(kAllLanes, later_from, 0);
  }
}

template <class T, int kChannels>
__global__ void __launch_bounds__(kThreads) composite_backward_kernel(CompositeArgs<T> a) {
  using S = Sharing<T, kChannels>;
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x, threads = int64_t(gridDim.x) * kThreads;
  const int64_t owned = a.ray_offsets[a.num_rays];
  if (thread / 32 < a.num_rays) composite_backward_by_warp<T, kChannels>(a, thread / 32, thread % 32);
  clear_packs<1>(a.grad_density, owned + thread, a.num_samples, threads);
  clear_packs<S::kSize>(a.grad_values, owned * S::kPacks + thread, a.num_samples * S::kPacks, threads);
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

// Packs start at whole 16 bytes where the arrays do; other arrays go to the plain kernels.
template <class T>
bool has_whole_packs(const CompositeArgs<T>& a) {
  return a.channels % kPackSize<T> != 0 || (is_pack_aligned(a.values) && is_pack_aligned(a.out_values) &&
                                            is_pack_aligned(a.grad_out_values) && is_pack_aligned(a.grad_values));
}

// A warp for each ray, and one where there is none: what belongs to no ray has to be cleared all the same.
template <class T>
int64_t threads_of(const CompositeArgs<T>& a) {
  return 32 * max2<int64_t>(a.num_rays, 1);
}

}  // namespace

template <class T>
void composite(const CompositeArgs<T>& a, Stream stream) {
  if (!has_whole_packs(a)) return cuda_plain::composite(a, stream);
  const auto fast = [&](auto channels) {
    launch(composite_kernel<T, decltype(channels)::value>, threads_of(a), "composite_rays", stream, a);
  };
  with_channels(a.channels, fast, [&] { cuda_plain::composite(a, stream); });
}

template <class T>
void composite_backward(const CompositeArgs<T>& a, Stream stream) {
  if (!has_whole_packs(a)) return cuda_plain::composite_backward(a, stream);
  const auto fast = [&](auto channels) {
    launch(composite_backward_kernel<T, decltype(channels)::value>, threads_of(a), "composite_rays_backward", stream,
           a);
  };
  with_channels(a.channels, fast, [&] { cuda_plain::composite_backward(a, stream); });
}

NERF_INSTANTIATE(composite, CompositeArgs)
NERF_INSTANTIATE(composite_backward, CompositeArgs)

}  // namespace nerf::cuda
