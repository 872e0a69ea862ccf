// How the numbers of a grid, their gradients, the moments of Adam and what is interpolated are stored. Each type below stands
// for all of them; what is not named as short is float32, and everything is computed in float32.
#pragma once

#include "rounding.h"

namespace nerf {

struct ShortMoments {};  // moments are bfloat16
struct ShortValues {};   // gradients too, and values are float16, rounded at random (rounding.h)
struct ShortSamples {};  // all of these, and what is interpolated and its gradient are bfloat16
template <>
struct WideOf<ShortMoments> {
  using Type = float;
};
template <>
struct WideOf<ShortValues> {
  using Type = float;
};
template <>
struct WideOf<ShortSamples> {
  using Type = float;
};

template <class S, class... Of>
constexpr bool kIsOneOf = (std::is_same_v<S, Of> || ...);

template <class S>
using Value = std::conditional_t<kIsOneOf<S, ShortValues, ShortSamples, Float16>, Float16, Wide<S>>;
template <class S>
using Gradient = std::conditional_t<kIsOneOf<S, ShortValues, ShortSamples>, BFloat16, Wide<S>>;
template <class S>
using Interpolated = std::conditional_t<kIsOneOf<S, ShortSamples>, BFloat16, Wide<S>>;

// Squares of gradients need the range of a float32, which bfloat16 has.
template <class S>
constexpr bool kHasShortMoments = kIsOneOf<S, ShortMoments, ShortValues, Float16>;
template <class S>
using Moment = std::conditional_t<kHasShortMoments<S>, BFloat16, S>;

}  // namespace nerf
