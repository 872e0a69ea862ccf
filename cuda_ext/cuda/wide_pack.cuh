// Packs of numbers that may be stored with 16 bits, as they are computed in. The includer brings pack.cuh, or a stand-in
// for it (tests/cpp).
#pragma once

#include "../math/bfloat16.h"

namespace nerf::cuda {

template <class G, int kCount>
__device__ Pack<Wide<G>, kCount> widened(const Pack<G, kCount>& pack) {
  Pack<Wide<G>, kCount> wide;
  NERF_UNROLL for (int c = 0; c < kCount; ++c) wide.v[c] = widen(pack.v[c]);
  return wide;
}

template <int kCount, class G>
__device__ Pack<Wide<G>, kCount> load_wide(const G* address) {
  return widened(load<kCount>(address));
}

// Rounds to the nearest.
template <class G, int kCount>
__device__ void store_narrow(G* address, const Pack<Wide<G>, kCount>& wide) {
  Pack<G, kCount> pack;
  if constexpr (std::is_same_v<G, BFloat16> && kCount % 2 == 0) {
    uint32_t pairs[kCount / 2];
    NERF_UNROLL for (int c = 0; c < kCount; c += 2) pairs[c / 2] = round_pair(wide.v[c], wide.v[c + 1]);
    memcpy(&pack, pairs, sizeof pack);
  } else {
    NERF_UNROLL for (int c = 0; c < kCount; ++c) pack.v[c] = narrow<G>(wide.v[c]);
  }
  store(address, pack);
}

}  // namespace nerf::cuda
