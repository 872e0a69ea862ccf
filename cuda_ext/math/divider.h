// Division by a number that is known before the kernel starts.
#pragma once

#include "host_device.h"

namespace nerf {

// 64-bit numbers: the machine's own division.
template <class Int>
struct Divider {
  Int divisor = 1;

  Divider() = default;
  explicit Divider(Int by) : divisor(by) {}
  HOST_DEVICE Int divide(Int n) const { return n / divisor; }
};

// Numbers below 2^31: a multiplication and a shift (Granlund & Montgomery 1994, figure 4.1).
template <>
struct Divider<uint32_t> {
  uint32_t divisor = 1, magic = 1, shift = 0;

  Divider() = default;
  explicit Divider(uint32_t by) : divisor(by) {
    while (uint64_t(1) << shift < by) ++shift;
    magic = uint32_t((((uint64_t(1) << shift) - by) << 32) / by + 1);
  }
  HOST_DEVICE uint32_t divide(uint32_t n) const { return (uint32_t(uint64_t(n) * magic >> 32) + n) >> shift; }
};

}  // namespace nerf
