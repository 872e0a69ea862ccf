// The colors of pixels from what a network says of them, over their background.
//
//   out[p,c] = opacity[p] (sigmoid(logits[p,c]) + diffuse[p,c]) + (1 - opacity[p]) background[p,c]
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct PixelColorsArgs {
  const T* logits;      // [P,3]
  const T* opacity;     // [P]
  const T* background;  // [3], or [P,3] with a stride of 3
  const T* diffuse;     // [P,3] or null
  int64_t pixels, background_stride;
  T* out;                                                          // [P,3] forward
  const T* grad_out;                                               // [P,3] backward
  T *grad_logits, *grad_opacity, *grad_background, *grad_diffuse;  // [P,3], [P], [P,3], [P,3]
};

template <class T>
HOST_DEVICE T sigmoid_of(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <class T>
HOST_DEVICE void color_pixel(const PixelColorsArgs<T>& a, int64_t p) {
  const T opacity = a.opacity[p];
  const T* behind = a.background + p * a.background_stride;
  NERF_UNROLL for (int c = 0; c < 3; ++c) {
    const T own = sigmoid_of(a.logits[3 * p + c]) + (a.diffuse ? a.diffuse[3 * p + c] : T(0));
    a.out[3 * p + c] = opacity * own + (T(1) - opacity) * behind[c];
  }
}

template <class T>
HOST_DEVICE void pixel_color_gradient(const PixelColorsArgs<T>& a, int64_t p) {
  const T opacity = a.opacity[p];
  const T* behind = a.background + p * a.background_stride;
  T along = T(0);
  NERF_UNROLL for (int c = 0; c < 3; ++c) {
    const T grad = a.grad_out[3 * p + c], lit = sigmoid_of(a.logits[3 * p + c]);
    a.grad_logits[3 * p + c] = grad * opacity * lit * (T(1) - lit);
    a.grad_background[3 * p + c] = grad * (T(1) - opacity);
    a.grad_diffuse[3 * p + c] = grad * opacity;
    along += grad * (lit + (a.diffuse ? a.diffuse[3 * p + c] : T(0)) - behind[c]);
  }
  a.grad_opacity[p] = along;
}

}  // namespace nerf
