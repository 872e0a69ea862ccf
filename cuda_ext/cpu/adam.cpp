// adam_step on the CPU: row by row, so that a row without any gradient costs one look and another one vector arithmetic.
#include "../portable/adam.h"

#include <cstring>
#include <type_traits>
#include <vector>

namespace nerf::cpu {
namespace {

// Whether any number of a row is not zero, by their bits but for the sign: these make vectors, comparisons do not.
template <class T>
bool any_of(const T* row, int64_t channels) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  Bits any = 0;
  for (int64_t c = 0; c < channels; ++c) {
    Bits bits;
    std::memcpy(&bits, row + c, sizeof bits);
    any |= bits;
  }
  return any << 1 != 0;
}

}  // namespace

template <class S>
void adam(const AdamArgs<S>& a, Stream) {
  using T = Wide<S>;
  const AdamScale<T> scale = adam_scale(a);
  std::vector<T> rates(a.channels, T(a.lr[0]));
  if (a.lr_count > 1) std::copy(a.lr, a.lr + a.channels, rates.begin());
  const T* lr = rates.data();
  parallel_for(a.num_rows, 256, [&](int64_t n) {
    const AdamArgs<S> b = a;
    const int64_t first = (b.rows ? b.rows[n] : n) * b.channels, to_moment = n * b.channels - first;
    if (!any_of(b.grad + first, b.channels)) return;
    const uint32_t seed = random_row(*b.step, n);
#pragma GCC ivdep
    for (int64_t i = first; i < first + b.channels; ++i)
      adam_update(b, scale, i, i + to_moment, lr[i - first], random_bits(seed, uint32_t(i - first)));
  });
}

NERF_INSTANTIATE(adam, AdamArgs)
template void adam(const AdamArgs<ShortMoments>&, Stream);

}  // namespace nerf::cpu
