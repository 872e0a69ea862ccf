// adam_rows: the scales, and then one value at a time.
#pragma once

#include "../device.h"
#include "../math/adam_rows.h"

namespace nerf {
namespace portable {

template <class T>
void adam_rows(const Device& device, const AdamRowsArgs<T>& a) {
  device.for_each("adam_rows: scale", 1, [a] ON_DEVICE(int64_t) { *a.scale = adam_scale(a.adam); });
  const int64_t values = a.adam.num_rows * a.adam.channels;
  device.for_each("adam_rows", values, 16384, [a] ON_DEVICE(int64_t i) { adam_row_value(a, i); });
}

}  // namespace portable

NERF_PORTABLE(adam_rows, AdamRowsArgs)

}  // namespace nerf
