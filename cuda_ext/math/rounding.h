// Numbers stored with 16 bits, and rounding at random to them.
//
// A number between two neighbors of the narrow type becomes either, the nearer one with the higher probability, such that
// its mean is the number itself. So many small changes add up (Gupta et al. 2015, "Deep learning with limited numerical
// precision"), which rounding to the nearest would lose one by one. A number that the narrow type has stays as it is.
//
// The random bits are a hash of step, row and column: the same on every device and in every run (nerf/ops/rounding.py has
// the same in PyTorch).
#pragma once

#include "bfloat16.h"

namespace nerf {

struct Float16 {
  uint16_t bits;
};
template <>
struct WideOf<Float16> {
  using Type = float;
};

constexpr int kFloat16Dropped = 13;                      // bits that a float32 has more behind the point
constexpr uint32_t kFloat16Shift = 112, kInfinity = 0x7c00;  // of the exponent; infinity as float16
constexpr uint32_t kSmallestNormal = (kFloat16Shift + 1) << 23;  // 2^-14, the smallest float16 with all its digits, as float32
constexpr float kSubnormals = 1 << 24;                   // float16 numbers below that are whole multiples of 2^-24

HOST_DEVICE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

HOST_DEVICE float widen(Float16 x) {
  float wide;
#ifdef __CUDA_ARCH__
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
#else
  const uint32_t magnitude = x.bits & 0x7fffu;
  uint32_t bits = magnitude < 0x400 ? bits_of(float(magnitude) / kSubnormals)
                                    : (magnitude << kFloat16Dropped) + (kFloat16Shift << 23);
  if (magnitude >= kInfinity) bits |= 0x7f800000u;
  bits |= uint32_t(x.bits & 0x8000u) << 16;
  memcpy(&wide, &bits, sizeof wide);
#endif
  return wide;
}

// x with the precision of S; types that hold x keep it. random: uniform bits, of which the lower 16 are used. What is too
// large becomes infinite.
template <class S>
HOST_DEVICE S narrow_at_random(Wide<S> x, uint32_t random) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    if (x != x) return narrow<S>(x);
    return {uint16_t((bits_of(x) + (random & 0xffffu)) >> 16)};
  } else if constexpr (std::is_same_v<S, Float16>) {
    const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    random &= (1u << kFloat16Dropped) - 1;
    uint32_t rounded;
    if (magnitude > 0x7f800000u) rounded = 0x7e00;  // NaN
    else if (magnitude < kSmallestNormal)
      rounded = uint32_t(std::fabs(x) * kSubnormals + float(random) / float(1 << kFloat16Dropped));
    else rounded = min2(((magnitude + random) >> kFloat16Dropped) - (kFloat16Shift << 10), kInfinity);
    return {uint16_t(sign | rounded)};
  } else {
    return x;
  }
}

// A hash of 32 bits (Wellons 2018, "Prospecting for hash functions", lowbias32).
HOST_DEVICE uint32_t hashed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// What random bits of a row in a step begin with.
HOST_DEVICE uint32_t random_row(float step, int64_t row) { return hashed(hashed(bits_of(step)) + uint32_t(row)); }

// 32 random bits for a column of the row.
HOST_DEVICE uint32_t random_bits(uint32_t row, uint32_t column) { return hashed(row + column * 0x9e3779b9u); }

}  // namespace nerf
