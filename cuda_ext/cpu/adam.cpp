// adam_step on the CPU: row by row, so that a row without any gradient costs one look and another one vector arithmetic.
#include <vector>

#include "parallel.h"

namespace nerf::cpu {

template <class T>
void adam(const AdamArgs<T>& a, Stream) {
  const AdamScale<T> scale = adam_scale(a);
  std::vector<T> rates(a.channels, T(a.lr[0]));
  if (a.lr_count > 1) std::copy(a.lr, a.lr + a.channels, rates.begin());
  const T* lr = rates.data();
  parallel_for(a.num_rows, 256, [&](int64_t n) {
    const int64_t first = (a.rows ? a.rows[n] : n) * a.channels, end = first + a.channels;
    bool touched = false;
    for (int64_t i = first; i < end; ++i) touched |= a.grad[i] != T(0);
    if (!touched) return;
    const AdamArgs<T> b = a;
    const int64_t to_moment = n * a.channels - first;
#pragma GCC ivdep
    for (int64_t i = first; i < end; ++i) adam_update(b, scale, i, i + to_moment, lr[i - first]);
  });
}

NERF_INSTANTIATE(adam, AdamArgs)

}  // namespace nerf::cpu
