// bring_rows: a tile of words at a time, then a value at a time. Between the two a cumulative sum, on the torch side.
#pragma once

#include "../device.h"
#include "../math/bring_rows.h"

namespace nerf {
namespace portable {

template <class T>
void bring_rows_count(const Device& device, const BringRowsArgs<T>& a) {
  device.for_each("bring_rows: count", a.tiles(), [a] ON_DEVICE(int64_t tile) { count_tile(a, tile); });
}

template <class T>
void bring_rows(const Device& device, const BringRowsArgs<T>& a) {
  device.for_each("bring_rows: list", a.tiles(), [a] ON_DEVICE(int64_t tile) { list_tile(a, tile); });
  const int64_t longer = max2(a.capacity, a.corner_capacity);
  device.for_each("bring_rows: tail", longer, [a] ON_DEVICE(int64_t i) { clear_tail(a, i); });
  const int64_t values = a.capacity * a.channels;
  device.for_each("bring_rows: copy", values, 16384, [a] ON_DEVICE(int64_t i) { copy_value(a, i); });
}

}  // namespace portable

NERF_PORTABLE(bring_rows_count, BringRowsArgs)
NERF_PORTABLE(bring_rows, BringRowsArgs)

}  // namespace nerf
