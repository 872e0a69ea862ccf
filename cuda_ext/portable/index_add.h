// index_add: one addition per number of src, or, for one order, one walk of the index per number of dst. Rows whose index
// lies outside of dst are left out.
#pragma once

#include "../device.h"
#include "../math/index_add.h"

namespace nerf {
namespace portable {

template <class T>
void index_add(const Device& device, const IndexAddArgs<T>& a) {
  const int64_t elements = a.slice.num_elements();
  if (a.num_targets == 0 || a.num_rows * elements == 0) return;
  const SliceWalk<uint64_t> walk(a.slice);
  if (a.deterministic) {
    device.for_each("index_add", a.num_targets * elements, [a, walk, elements] ON_DEVICE(int64_t i) {
      uint64_t d, s;
      walk.locate(uint64_t(i % elements), d, s);
      T* const target = a.dst + d + i / elements * a.dst_row_stride;
      Wide<T> sum = widen(*target);
      for (int64_t row = 0; row < a.num_rows; ++row)
        if (a.index_at(row) == i / elements) sum += a.alpha * widen(a.src[s + row * a.src_row_stride]);
      *target = narrow<T>(sum);
    });
    return;
  }
  device.for_each("index_add", a.num_rows * elements, [a, walk, elements] ON_DEVICE(int64_t i) {
    const int64_t row = i / elements, target = a.index_at(row);
    if (!a.in_range(target)) return;
    uint64_t d, s;
    walk.locate(uint64_t(i % elements), d, s);
    const T value = narrow<T>(a.alpha * widen(a.src[s + row * a.src_row_stride]));
    Device::add(a.dst + d + target * a.dst_row_stride, value);
  });
}

}  // namespace portable

NERF_PORTABLE(index_add, IndexAddArgs)
NERF_BODY_FOR(index_add, IndexAddArgs, BFloat16)

}  // namespace nerf
