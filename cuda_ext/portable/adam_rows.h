// adam_rows: the scales, and then as many values at a time as are moved at once.
#pragma once

#include "../device.h"
#include "../math/adam_rows.h"

namespace nerf {
namespace portable {

template <int kCount, class S>
void adam_rows_by(const Device& device, const AdamRowsArgs<S>& a) {
  const int64_t packs = a.adam.num_rows * (a.adam.channels / kCount);
  device.for_each("adam_rows", packs, 16384 / kCount, [a] ON_DEVICE(int64_t i) { adam_row_values<kCount>(a, i); });
}

template <class S>
void adam_rows(const Device& device, const AdamRowsArgs<S>& a) {
  device.for_each("adam_rows: scale", 1, [a] ON_DEVICE(int64_t) { *a.scale = adam_scale(a.adam); });
  const bool whole = begins_whole(a.param) && begins_whole(a.moments) && begins_whole(a.values) && begins_whole(a.adam.grad);
  with_several<S>(a.adam.channels, whole, [&](auto several) { adam_rows_by<several.value>(device, a); });
}

}  // namespace portable

NERF_PORTABLE(adam_rows, AdamRowsArgs)
NERF_BODY_FOR(adam_rows, AdamRowsArgs, Float16)

}  // namespace nerf
