// The pairwise SSIM loss of a pair of pixels (Wang et al. 2004, eqs. 9 and 10), and its gradient.
//
// Pixel p of R and pixel R - R / 2 + p are a pair, so of an odd R the one in the middle has none. With the differences
// d (rendered) and d' (target) of a pair, in each channel:
//
//   loss = sum_c (d - d')^2 / (d^2 + d'^2 + 2 C2)
//   d loss / d d  =  2 q (1 - q d),  d loss / d d' = -2 q (1 + q d')  with q = (d - d') / (d^2 + d'^2 + 2 C2)
//
// The first pixel of a pair gets these gradients, the second one their negatives.
#pragma once

#include "host_device.h"

namespace nerf {

constexpr double kSsimC2 = 0.03 * 0.03;  // as nerf/ops/pair_ssim.py has it

template <class T>
struct PairSsimArgs {
  const T *rgb, *target;  // [R,3]
  int64_t pixels;
  T* loss;                    // [R / 2]  forward
  const T* grad_loss;         // [R / 2]  backward
  T *grad_rgb, *grad_target;  // [R,3]

  HOST_DEVICE int64_t pairs() const { return pixels / 2; }
  HOST_DEVICE int64_t firsts() const { return pixels - pairs(); }  // pixels that are not the second one of a pair

  // Places of channel c of the two pixels of pair p.
  HOST_DEVICE int64_t first(int64_t p, int c) const { return 3 * p + c; }
  HOST_DEVICE int64_t second(int64_t p, int c) const { return 3 * (firsts() + p) + c; }
};

// What numerator and denominator of a channel are made of.
template <class T>
struct PairContrast {
  T rendered, target, scale;  // d, d', d^2 + d'^2 + 2 C2

  HOST_DEVICE PairContrast(const PairSsimArgs<T>& a, int64_t p, int c) {
    const int64_t first = a.first(p, c), second = a.second(p, c);
    rendered = a.rgb[first] - a.rgb[second];
    target = a.target[first] - a.target[second];
    scale = rendered * rendered + target * target + T(2 * kSsimC2);
  }
};

template <class T>
HOST_DEVICE void compare_pair(const PairSsimArgs<T>& a, int64_t p) {
  T sum = T(0);
  NERF_UNROLL for (int c = 0; c < 3; ++c) {
    const PairContrast<T> d(a, p, c);
    const T error = d.rendered - d.target;
    sum += error * error / d.scale;
  }
  a.loss[p] = sum;
}

// p counts the firsts: each writes its own gradients and those of the second one of its pair.
template <class T>
HOST_DEVICE void pair_gradient(const PairSsimArgs<T>& a, int64_t p) {
  if (p == a.pairs()) {  // the middle one of an odd R
    NERF_UNROLL for (int64_t i = 3 * p; i < 3 * p + 3; ++i) a.grad_rgb[i] = a.grad_target[i] = T(0);
    return;
  }
  NERF_UNROLL for (int c = 0; c < 3; ++c) {
    const PairContrast<T> d(a, p, c);
    const T q = (d.rendered - d.target) / d.scale, slope = T(2) * a.grad_loss[p] * q;
    const T of_rendered = slope * (T(1) - q * d.rendered), of_target = -slope * (T(1) + q * d.target);
    const int64_t first = a.first(p, c), second = a.second(p, c);
    a.grad_rgb[first] = of_rendered;
    a.grad_rgb[second] = -of_rendered;
    a.grad_target[first] = of_target;
    a.grad_target[second] = -of_target;
  }
}

}  // namespace nerf
