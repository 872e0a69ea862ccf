// bring_rows: a tile of words at a time, then as many values as are moved at once. Between the two a cumulative sum, on the torch side.
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
void list_rows(const Device& device, const BringRowsArgs<T>& a) {
  device.for_each("bring_rows: list", a.tiles(), [a] ON_DEVICE(int64_t tile) { list_tile(a, tile); });
  const int64_t longer = max2(a.capacity, a.corner_capacity);
  device.for_each("bring_rows: tail", longer, [a] ON_DEVICE(int64_t i) { clear_tail(a, i); });
}

template <int kCount, class T>
void copy_by(const Device& device, const BringRowsArgs<T>& a) {
  const int64_t packs = a.capacity * (a.channels / kCount);
  device.for_each("bring_rows: copy", packs, 16384 / kCount, [a] ON_DEVICE(int64_t i) { copy_values<kCount>(a, i); });
}

template <class T>
void bring_rows(const Device& device, const BringRowsArgs<T>& a) {
  list_rows(device, a);
  const bool whole = begins_whole(a.grid) && begins_whole(a.values);
  with_several<T>(a.channels, whole, [&](auto several) { copy_by<several.value>(device, a); });
}

}  // namespace portable

NERF_PORTABLE(bring_rows_count, BringRowsArgs)
NERF_PORTABLE(bring_rows, BringRowsArgs)
NERF_BODY_FOR(bring_rows_count, BringRowsArgs, Float16)
NERF_BODY_FOR(bring_rows, BringRowsArgs, Float16)

}  // namespace nerf
