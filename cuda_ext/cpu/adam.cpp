// adam_step on the CPU: row by row, so that a row without any gradient costs one look and another one vector arithmetic.
// Rows of common lengths are vectors without a loop.
#include "../portable/adam.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "../math/channels.h"

namespace nerf::cpu {
namespace {

// Whether any number of a row is not zero, by their bits but for the sign: these make vectors, comparisons do not.
template <class T>
bool any_of(const T* row, int64_t channels) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  Bits any = 0;
  for (int64_t c = 0; c < channels; ++c) {
    Bits bits;
    std::memcpy(&bits, row + c, sizeof bits);
    any |= bits;
  }
  return Bits(any << 1) != 0;
}

// Row n of those that are visited. kChannels: how many, 0: not known to the compiler. lr: of each.
template <class S, int kChannels, class T>
void update_row(const AdamArgs<S>& a, const AdamScale<T> scale, const T* lr, int64_t n) {
  const int64_t channels = kChannels ? kChannels : a.channels, first = (a.rows ? a.rows[n] : n) * channels;
  Value<S>* __restrict__ param = a.param + first;
  Gradient<S>* __restrict__ grad = a.grad + first;
  if (!any_of(grad, channels)) return;
  Moment<S> *__restrict__ m = a.exp_avg + n * channels, *__restrict__ v = a.exp_avg_sq + n * channels;
  const uint32_t seed = random_row(*a.step, n);
  for (int64_t c = 0; c < channels; ++c) {
    adam_stored(a, scale, lr[c], T(widen(grad[c])), param[c], m[c], v[c], random_bits(seed, uint32_t(c)));
    grad[c] = Gradient<S>{};
  }
}

}  // namespace

template <class S>
void adam(const AdamArgs<S>& a, Stream) {
  using T = Wide<S>;
  const AdamScale<T> scale = adam_scale(a);
  std::vector<T> rates(a.channels, T(a.lr[0]));
  if (a.lr_count > 1) std::copy(a.lr, a.lr + a.channels, rates.begin());
  const auto update_all = [&](auto constant) {
    parallel_for(a.num_rows, 256, [&](int64_t n) {
      const AdamArgs<S> here = a;  // a copy: what is written cannot be a part of it
      update_row<S, decltype(constant)::value>(here, scale, rates.data(), n);
    });
  };
  with_channels<1>(CommonChannels(), a.channels, update_all, [&] { update_all(std::integral_constant<int, 0>()); });
}

// Total variation of all rows comes first: what a neighbor's value is must not depend on which thread is ahead.
template <class S>
void adam_smooth(const AdamSmoothArgs<S>& a, Stream stream) {
  total_variation(a.variation, stream);
  adam(a.adam, stream);
}

NERF_INSTANTIATE(adam, AdamArgs)
template void adam(const AdamArgs<ShortMoments>&, Stream);
template void adam(const AdamArgs<ShortValues>&, Stream);
NERF_INSTANTIATE(adam_smooth, AdamSmoothArgs)
template void adam_smooth(const AdamSmoothArgs<ShortMoments>&, Stream);
template void adam_smooth(const AdamSmoothArgs<ShortValues>&, Stream);

}  // namespace nerf::cpu
