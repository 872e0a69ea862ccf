// How a group of lanes reads the samples of a ray, as many at a time, for composite_rays: a lane per sample, and rows of
// values shared.
//
// Rows of values are longer than a lane should read alone: the lanes of a warp would meet 32 rows with every load.
// Where rows are whole packs of four numbers, neighboring lanes read the packs of one row, a few rows at a time, and
// shuffles carry weights and dot products between them and the lane of the sample. The includer brings pack.cuh, or a
// stand-in for it (tests/cpp).
#pragma once

#include "../math/composite.h"
#include "warp.cuh"
#include "wide_pack.cuh"

namespace nerf::cuda {

constexpr int power_of_two_from(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

// How a group shares the rows of its samples: kLanes lanes read one row, kGroup / kLanes rows at a time, kLanes times. A
// negative kChannels: a number of them that is known at run time only, and makes up to -kChannels / kSize whole packs.
template <class V, int kChannels, int kLanesOfRay>
struct Sharing {
  using T = Wide<V>;
  static constexpr int kGroup = kLanesOfRay;
  static constexpr int kMost = kChannels < 0 ? -kChannels : kChannels;
  static constexpr bool kWhole = kMost > 0 && kMost % kPackSize<T> == 0;
  static constexpr int kSize = kWhole ? kPackSize<T> : 1;
  static constexpr int kLanes = kWhole ? power_of_two_from(kMost / kSize) : 1;
  static constexpr int kEach = kWhole ? 1 : kMost;  // packs of a row for each of its lanes
  static constexpr int kRows = kGroup / kLanes;
  static_assert(kRows > 0, "a row has more packs than there are lanes");
  static constexpr bool kAhead = kLanes * kEach <= 4;  // few registers: the next round is read during this one

  static __device__ int channels(const CompositeArgs<V>& a) { return kChannels < 0 ? int(a.channels) : kMost; }
  static __device__ int packs(const CompositeArgs<V>& a) { return int(unsigned(channels(a)) / kSize); }  // of a row
};

// What a lane reads of a group's samples: the numbers of its own, and its pack of each turn's row. All of it is on its way
// before any of it is looked at: a warp that waits for each row in turn waits for memory eight times. Samples are counted
// in 32 bits.
template <class V, int kChannels, int kGroup, bool kBackward>
struct Round {
  using S = Sharing<V, kChannels, kGroup>;
  using T = Wide<V>;
  T t_start, t_end, density, weight, grad_weight;
  Pack<V, S::kSize> packs[S::kLanes][S::kEach + 1];  // weights alone have no channel

  // Of the samples first to first + kGroup - 1, forward those before the ray's end, backward those from its begin on. The
  // others are zero.
  __device__ Round(const CompositeArgs<V>& a, int first, int limit, int lane) {
    const auto on_ray = [&](int sample) { return kBackward ? sample >= limit : sample < limit; };
    const int i = first + lane;
    const bool mine = on_ray(i);
    t_start = mine ? a.t_starts[i] : T(0), t_end = mine ? a.t_ends[i] : T(0);
    if constexpr (kBackward) weight = mine ? a.weights[i] : T(0), grad_weight = mine && a.grad_weights ? a.grad_weights[i] : T(0);
    else density = mine ? a.density[i] : T(0);
    const int sample = first + lane / S::kLanes;  // of the first turn
    const V* row = a.values + int64_t(sample) * S::channels(a) + lane % S::kLanes * S::kSize;
    const bool reads = S::kLanes == 1 || lane % S::kLanes < S::packs(a);
#pragma unroll
    for (int turn = 0; turn < S::kLanes; ++turn) {
      const bool there = reads && on_ray(sample + turn * S::kRows);
#pragma unroll
      for (int e = 0; e < S::kEach; ++e) {
        packs[turn][e] = {};
        if (there) packs[turn][e] = load<S::kSize>(row + turn * S::kRows * S::channels(a) + e * S::kSize);
      }
    }
  }
};

// The sum over a row's lanes of each turn's number, in the lane of the turn's sample. Halves of the turns change hands, so
// that kLanes numbers take kLanes shuffles instead of log2(kLanes) each.
template <class S, class T>
__device__ T sum_of_own_row(T (&numbers)[S::kLanes], int lane) {
#pragma unroll
  for (int half = S::kLanes / 2; half > 0; half /= 2)
#pragma unroll
    for (int turn = 0; turn < half; ++turn) {
      const T low = numbers[turn], high = numbers[turn + half];
      numbers[turn] = (lane & half ? high : low) + __shfl_xor_sync(kAllLanes, lane & half ? low : high, half);
    }
  return S::kLanes == 1 ? numbers[0]
                        : __shfl_sync(kAllLanes, numbers[0], lane % S::kRows * S::kLanes + lane / S::kRows, S::kGroup);
}

}  // namespace nerf::cuda
