// bfloat16 as stored: the upper half of a float32. Arithmetic is done in float32.
#pragma once

#include <cstring>
#include <type_traits>

#include "host_device.h"

namespace nerf {

struct BFloat16 {
  uint16_t bits;
};

template <class T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<BFloat16> {
  using Type = float;
};
// The type that numbers stored as T are computed in.
template <class T>
using Wide = typename WideOf<T>::Type;

HOST_DEVICE float widen(float x) { return x; }
HOST_DEVICE double widen(double x) { return x; }
HOST_DEVICE float widen(BFloat16 x) {
  const uint32_t bits = uint32_t(x.bits) << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// Of two in a register, the first in the lower bits.
HOST_DEVICE float widen_low(uint32_t pair) { return widen(BFloat16{uint16_t(pair)}); }
HOST_DEVICE float widen_high(uint32_t pair) { return widen(BFloat16{uint16_t(pair >> 16)}); }

// Rounds to the nearest, ties to even.
template <class T>
HOST_DEVICE T narrow(Wide<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return {uint16_t(bits >> 16 | 0x40)};  // NaN stays one
    return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  } else {
    return x;
  }
}

// Adds to a number that may be stored as bfloat16, and then is rounded.
template <class G>
HOST_DEVICE void add_to(G& sum, Wide<G> value) {
  if constexpr (std::is_same_v<G, BFloat16>) sum = narrow<G>(widen(sum) + value);
  else sum += value;
}

}  // namespace nerf
