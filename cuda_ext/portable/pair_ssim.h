// pair_ssim: one pair of pixels at a time.
#pragma once

#include "../device.h"
#include "../math/pair_ssim.h"

namespace nerf {
namespace portable {

template <class T>
void pair_ssim(const Device& device, const PairSsimArgs<T>& a) {
  device.for_each("pair_ssim", a.pairs(), 256, [a] ON_DEVICE(int64_t p) { compare_pair(a, p); });
}

template <class T>
void pair_ssim_backward(const Device& device, const PairSsimArgs<T>& a) {
  device.for_each("pair_ssim_backward", a.firsts(), 256, [a] ON_DEVICE(int64_t p) { pair_gradient(a, p); });
}

}  // namespace portable

NERF_PORTABLE(pair_ssim, PairSsimArgs)
NERF_PORTABLE(pair_ssim_backward, PairSsimArgs)

}  // namespace nerf
