#pragma once

#include "bfloat16.h"

namespace nerf {

// a . b, as they may be stored, as eight sums that do not wait for each other: the order of a single sum no compiler may change.
template <class V, class G, class T = Wide<V>>
HOST_DEVICE T dot(const V* a, const G* b, int64_t count) {
  T sums[8] = {}, rest = T(0);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) NERF_UNROLL for (int k = 0; k < 8; ++k) sums[k] += widen(a[i + k]) * widen(b[i + k]);
  for (; i < count; ++i) rest += widen(a[i]) * widen(b[i]);
  NERF_UNROLL for (int k = 0; k < 4; ++k) sums[k] += sums[k + 4];
  return rest + ((sums[0] + sums[2]) + (sums[1] + sums[3]));
}

}  // namespace nerf
