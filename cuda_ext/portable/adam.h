// adam_step: one value at a time, each with powers of its own; total variation in a pass before.
#pragma once

#include "../device.h"
#include "../math/adam.h"
#include "total_variation.h"

namespace nerf {
namespace portable {

template <class S>
void adam(const Device& device, const AdamArgs<S>& a) {
  device.for_each("adam_step", a.num_rows * a.channels, [a] ON_DEVICE(int64_t k) {
    const int64_t n = k / a.channels, c = k % a.channels, row = a.rows ? a.rows[n] : n, i = row * a.channels + c;
    if (row < 0 || row >= a.all_rows || widen(a.grad[i]) == Wide<S>(0)) return;
    const uint32_t random = random_bits(random_row(*a.step, n), uint32_t(c));
    adam_update(a, adam_scale(a), i, k, Wide<S>(a.lr[a.lr_count == 1 ? 0 : c]), random);
  });
}

template <class S>
void adam_smooth(const Device& device, const AdamSmoothArgs<S>& a) {
  total_variation(device, a.variation);
  adam(device, a.adam);
}

}  // namespace portable

NERF_PORTABLE(adam, AdamArgs)
NERF_BODY_FOR(adam, AdamArgs, ShortMoments)
NERF_BODY_FOR(adam, AdamArgs, ShortValues)
NERF_PORTABLE(adam_smooth, AdamSmoothArgs)
NERF_BODY_FOR(adam_smooth, AdamSmoothArgs, ShortMoments)
NERF_BODY_FOR(adam_smooth, AdamSmoothArgs, ShortValues)

}  // namespace nerf
