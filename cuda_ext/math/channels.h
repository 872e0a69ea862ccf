// The one list of channel counts that have fast kernels, and how kernels take them as constants.
//
// Where any row of whole 16 bytes is as fast (Adam, total variation, gathering on CUDA) no list is asked. A count that is not
// in it is computed by the portable body, or by a loop of unknown length, and ops/composite.cpp says so once.
#pragma once

#include <type_traits>

#include "host_device.h"

namespace nerf {

template <int... kCounts>
struct Channels {};

using FastChannels = Channels<4, 8, 12, 16, 20, 24, 28, 32>;
// Those that fields have by default: kernels on CUDA know them as constants, others share a kernel.
using CommonChannels = Channels<12, 28>;

// body(constant) with the count as a std::integral_constant if it is in the list or one of kMore; else other().
template <int... kMore, int... kCounts, class Body, class Other>
void with_channels(Channels<kCounts...>, int64_t channels, const Body& body, const Other& other) {
  const auto run = [&](auto constant) {
    if (channels == constant.value) body(constant);
    return channels == constant.value;
  };
  if (!(... || run(std::integral_constant<int, kCounts>())) && !(... || run(std::integral_constant<int, kMore>())))
    other();
}

template <int... kCounts>
constexpr bool is_fast(Channels<kCounts...>, int64_t channels) {
  return (... || (channels == kCounts));
}

}  // namespace nerf
