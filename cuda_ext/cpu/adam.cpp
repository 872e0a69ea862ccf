// adam_step on the CPU: row by row, so that a row without any gradient costs one look and another one vector arithmetic.
#include <vector>

#include "parallel.h"

namespace nerf::cpu {

constexpr int64_t kRow = 32;  // where there is one learning rate for all

template <class T>
void adam(const AdamArgs<T>& a, Stream) {
  const AdamScale<T> scale = adam_scale(a);
  const int64_t length = a.lr_count == 1 ? kRow : a.lr_count;
  std::vector<T> rates(length, T(a.lr[0]));
  if (a.lr_count > 1) std::copy(a.lr, a.lr + length, rates.begin());
  const T* lr = rates.data();
  parallel_for((a.count + length - 1) / length, 256, [&](int64_t row) {
    const int64_t first = row * length, end = min2(first + length, a.count);
    bool touched = false;
    for (int64_t i = first; i < end; ++i) touched |= a.grad[i] != T(0);
    if (!touched) return;
    const AdamArgs<T> b = a;
#pragma GCC ivdep
    for (int64_t i = first; i < end; ++i) adam_update(b, scale, i, lr[i - first]);
  });
}

NERF_INSTANTIATE(adam, AdamArgs)

}  // namespace nerf::cpu
