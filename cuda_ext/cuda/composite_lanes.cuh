// The kernels of composite_rays: a warp per ray, or eight lanes where rays are many and short, and a lane per sample, so that
// loads are consecutive and most rays take one or two rounds. The includer brings pack.cuh, or a stand-in for it (tests/cpp).
//
// Transmittance is exp(-sum of optical depths), a scan over lanes; the gradient's sums over later samples are the same scan
// from the back. All lanes of a warp go round until the last of its rays has ended.
//
// The floor is bytes: 4 (C + 4) a sample forward, about twice that backward, at 28 channels of 4 bytes and 377000 samples
// 0.011 and 0.022 ms at 4.3 TB/s. A ray is a chain of waits for memory, so whatever a round reads is on its way together
// (composite_rows.cuh), and backward reads the ray's last round before it knows that it is the last.
#pragma once

#include "composite_rows.cuh"

namespace nerf::cuda {

constexpr int kRayBlock = 64;  // rays are of any length: two warps wait for the longer one, eight would for the longest

// Blocks that a multiprocessor has to hold of a kernel, which bounds its registers. Of long rays 1: each wants its loads on
// their way together. Of short ones more, for many warps hide more waiting than many loads of each: 16 blocks leave 64
// registers, 24 leave 40. Backward, rows of more than 4 numbers would spill. Turing holds 16 and no more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kManyBlocks = 16;
#else
constexpr int kManyBlocks = 24;
#endif
template <int kGroup>
constexpr int kLeastBlocks = kGroup < 32 ? 16 : 1;
template <int kChannels, int kGroup>
constexpr int kLeastBlocksBackward = kGroup < 32 && kChannels >= 0 && kChannels <= 4 ? kManyBlocks : 1;

__device__ inline float exponential(float x) { return expf(x); }

// Clears packs first, first + step, ... before end.
template <int kSize, class T>
__device__ void clear_packs(T* numbers, int64_t first, int64_t end, int64_t step) {
#pragma unroll 1
  for (int64_t k = first; k < end; k += step) store(numbers + k * kSize, Pack<T, kSize>{});
}

// One ray, that of this lane's group. A group without a ray has no sample and writes nothing. opaque: an optical depth behind
// which nothing counts.
template <class V, int kChannels, int kGroup, class T = Wide<V>>
__device__ void composite_by_lanes(const CompositeArgs<V>& a, T opaque, int64_t r, int lane) {
  using S = Sharing<V, kChannels, kGroup>;
  const bool there = r < a.num_rays;
  const int begin = there ? int(a.offset(r)) : 0;
  int end = there ? int(a.offset(r + 1)) : 0;
  const auto read = [&](int first) { return Round<V, kChannels, kGroup, false>(a, first, end, lane); };
  T optical_depth = T(0), opacity = T(0), depth = T(0);
  Pack<T, S::kSize> sum[S::kEach + 1] = {};
  auto next = read(begin);
  for (int first = begin; __any_sync(kAllLanes, first < end); first += kGroup) {
    const auto now = next;
    if (S::kAhead) next = read(first + kGroup);
    const bool valid = first + lane < end;
    const T own = now.density * (now.t_end - now.t_start);
    const T through = sum_up_to<1, kGroup>(own, lane);
    // The lane below holds what lies before this sample; subtracting `own` instead would turn a huge density to 0 or NaN.
    const T below = __shfl_up_sync(kAllLanes, through, 1, kGroup);
    const T transmittance = exponential(-(optical_depth + (lane ? below : T(0))));
    const T weight = valid && !(transmittance < a.min_transmittance) ? transmittance * opacity_of(own) : T(0);
    if (valid) a.weights[first + lane] = weight;
    opacity += weight;
    depth += weight * (T(0.5) * (now.t_start + now.t_end));
#pragma unroll
    for (int turn = 0; turn < S::kLanes; ++turn) {
      const T share =
          S::kLanes == 1 ? weight : __shfl_sync(kAllLanes, weight, turn * S::kRows + lane / S::kLanes, kGroup);
#pragma unroll
      for (int e = 0; e < S::kEach; ++e)
#pragma unroll
        for (int c = 0; c < S::kSize; ++c)
          if (share != T(0)) sum[e].v[c] += share * widen(now.packs[turn][e].v[c]);  // what weighs nothing may be infinite
    }
    optical_depth += __shfl_sync(kAllLanes, through, kGroup - 1, kGroup);
    if (optical_depth > opaque) {
      clear_packs<1>(a.weights, first + kGroup + lane, end, kGroup);
      end = begin;
      if (kGroup == 32) break;
    }
    if (!S::kAhead) next = read(first + kGroup);
  }
  opacity = warp_sum<1, kGroup>(opacity);
  depth = warp_sum<1, kGroup>(depth);
  for (int e = 0; e < S::kEach; ++e) {
    for (int c = 0; c < S::kSize; ++c)
      for (int distance = S::kLanes; distance < kGroup; distance *= 2)
        sum[e].v[c] += __shfl_xor_sync(kAllLanes, sum[e].v[c], distance);
    if (there && lane < S::kLanes && lane + e < S::packs(a))
      store(a.out_values + r * S::channels(a) + (lane + e) * S::kSize, sum[e]);
  }
  if (there && lane == 0) a.opacity[r] = opacity, a.depth[r] = depth;
}

template <class V, int kChannels, int kGroup>
__global__ void __launch_bounds__(kRayBlock, kLeastBlocks<kGroup>) composite_kernel(CompositeArgs<V> a, Wide<V> opaque) {
  const int64_t thread = int64_t(blockIdx.x) * kRayBlock + threadIdx.x, owned = a.offset(a.num_rays);
  composite_by_lanes<V, kChannels, kGroup>(a, opaque, thread / kGroup, thread % kGroup);
  clear_packs<1>(a.weights, owned + thread, a.num_samples, int64_t(gridDim.x) * kRayBlock);
}

template <class V, int kChannels, int kGroup, class T = Wide<V>>
__device__ void composite_backward_by_lanes(const CompositeArgs<V>& a, int64_t r, int lane) {
  using S = Sharing<V, kChannels, kGroup>;
  const bool there = r < a.num_rays;
  const int begin = there ? int(a.offset(r)) : 0, end = there ? int(a.offset(r + 1)) : 0;
  const auto read = [&](int last) {  // the samples of a round before it
    return Round<V, kChannels, kGroup, true>(a, last - kGroup, begin, lane);
  };
  const auto own_depth = [&](int i) { return i < end ? a.density[i] * (a.t_ends[i] - a.t_starts[i]) : T(0); };
  constexpr int kRounds = kGroup == 32 ? 4 : 2;  // of the way from the front: their depths are on their way together
  T own[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) own[round] = own_depth(begin + kGroup * round + lane);
  auto next = read(end);  // most rays count to their end: on its way before it is known whether this one does
  Pack<T, S::kSize> grad_out[S::kEach + 1] = {};  // this lane's packs of a row
#pragma unroll
  for (int e = 0; e < S::kEach; ++e)
    if (there && lane % S::kLanes + e < S::packs(a))
      grad_out[e] = load<S::kSize>(a.grad_out_values + r * S::channels(a) + (lane % S::kLanes + e) * S::kSize);
  const T grad_opacity = there ? a.grad_opacity[r] : T(0), grad_depth = there && a.grad_depth ? a.grad_depth[r] : T(0);

  // Where the samples that count end, and the optical depth up to there. All do if the last one does.
  int counted = end;
  T in_front = T(0), optical_depth = T(0);  // of the last sample; of all
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    if (begin + kGroup * round + lane < end - 1) in_front += own[round];
    optical_depth += own[round];
  }
  for (int i = begin + kGroup * kRounds + lane; i < end; i += kGroup) {
    const T depth = own_depth(i);
    if (i < end - 1) in_front += depth;
    optical_depth += depth;
  }
  in_front = warp_sum<1, kGroup>(in_front);
  optical_depth = warp_sum<1, kGroup>(optical_depth);
  const bool hidden = exponential(-in_front) < a.min_transmittance * T(1.001);  // perhaps: then from the front
  if (__any_sync(kAllLanes, hidden)) {
    counted = begin;
    optical_depth = T(0);
    bool all_count = true;  // of the rounds so far
    while (__any_sync(kAllLanes, all_count)) {
      const T depth = own_depth(counted + lane);
      const T through = sum_up_to<1, kGroup>(depth, lane), below = __shfl_up_sync(kAllLanes, through, 1, kGroup);
      const T transmittance = exponential(-(optical_depth + (lane ? below : T(0))));
      const bool counts = all_count && counted + lane < end && !(transmittance < a.min_transmittance);
      const int here = __popc(group_ballot<kGroup>(counts));
      counted += here;
      const T added = __shfl_sync(kAllLanes, through, max2(here - 1, 0), kGroup);
      if (here > 0) optical_depth += added;
      all_count = here == kGroup;
    }
  }
  if (counted < end) {
    next = read(counted);
    clear_packs<1>(a.grad_density, counted + lane, end, kGroup);
    clear_packs<S::kSize>(a.grad_values, int64_t(counted) * S::packs(a) + lane, int64_t(end) * S::packs(a), kGroup);
  }

  // From the back, in rounds that end where the counted samples end.
  T after = exponential(-optical_depth), later = T(0);
  for (int last = counted; __any_sync(kAllLanes, last > begin); last -= kGroup) {
    const auto now = next;
    if (S::kAhead) next = read(last - kGroup);
    const int first = last - kGroup, i = first + lane;
    const bool valid = i >= begin;
    T dots[S::kLanes] = {};
#pragma unroll
    for (int turn = 0; turn < S::kLanes; ++turn)
#pragma unroll
      for (int e = 0; e < S::kEach; ++e)
#pragma unroll
        for (int c = 0; c < S::kSize; ++c) dots[turn] += grad_out[e].v[c] * widen(now.packs[turn][e].v[c]);
    const T dot = sum_of_own_row<S>(dots, lane), weight = now.weight;
    const T middle = T(0.5) * (now.t_start + now.t_end);
    const T g = valid ? now.grad_weight + grad_opacity + grad_depth * middle + dot : T(0);
    const T weight_from = sum_from<kGroup>(weight, lane), later_from = sum_from<kGroup>(weight * g, lane);
    // The lane above holds the sum without this sample, so that the last one sees an exact zero.
    const T weight_above = __shfl_down_sync(kAllLanes, weight_from, 1, kGroup);
    const T later_above = __shfl_down_sync(kAllLanes, later_from, 1, kGroup);
    const T scale = a.gradient_scale(middle), scaled = weight * scale;
    if (valid) {
      const bool is_last = lane == kGroup - 1;
      const T transmittance_after = after + (is_last ? T(0) : weight_above);
      a.grad_density[i] =
          (now.t_end - now.t_start) * (transmittance_after * g - (later + (is_last ? T(0) : later_above))) * scale;
    }
#pragma unroll
    for (int turn = 0; turn < S::kLanes; ++turn) {
      const int row = first + turn * S::kRows + lane / S::kLanes;
      const T share =
          S::kLanes == 1 ? scaled : __shfl_sync(kAllLanes, scaled, turn * S::kRows + lane / S::kLanes, kGroup);
#pragma unroll
      for (int e = 0; e < S::kEach; ++e) {
        const int p = lane % S::kLanes + e;
        if (row < begin || p >= S::packs(a)) continue;
        Pack<T, S::kSize> grad;
        for (int c = 0; c < S::kSize; ++c) grad.v[c] = share * grad_out[e].v[c];
        store_narrow(a.grad_values + int64_t(row) * S::channels(a) + p * S::kSize, grad);
      }
    }
    after += __shfl_sync(kAllLanes, weight_from, 0, kGroup);
    later += __shfl_sync(kAllLanes, later_from, 0, kGroup);
    if (!S::kAhead) next = read(last - kGroup);
  }
}

template <class V, int kChannels, int kGroup>
__global__ void __launch_bounds__(kRayBlock, kLeastBlocksBackward<kChannels, kGroup>)
    composite_backward_kernel(CompositeArgs<V> a) {
  using S = Sharing<V, kChannels, kGroup>;
  const int64_t thread = int64_t(blockIdx.x) * kRayBlock + threadIdx.x, threads = int64_t(gridDim.x) * kRayBlock;
  const int64_t owned = a.offset(a.num_rays);
  composite_backward_by_lanes<V, kChannels, kGroup>(a, thread / kGroup, thread % kGroup);
  clear_packs<1>(a.grad_density, owned + thread, a.num_samples, threads);
  clear_packs<S::kSize>(a.grad_values, owned * S::packs(a) + thread, a.num_samples * S::packs(a), threads);
}

}  // namespace nerf::cuda
