// The colors of pixels from what a network says of them, over their background.
//
//   out[p,c] = opacity[p] sigmoid(logits[p,c]) + values[p,c] + (1 - opacity[p]) background[p,c]
//
// Values are composited along the rays, so they carry their opacity already; the first three are diffuse colors.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct PixelColorsArgs {
  const T* logits;      // [P,3]
  const T* opacity;     // [P]
  const T* background;  // [3], or [P,3] with a stride of 3
  const T* values;      // [P,channels] or null
  int64_t pixels, background_stride, channels;
  T* out;                                                         // [P,3] forward
  const T* grad_out;                                              // [P,3] backward
  T *grad_logits, *grad_opacity, *grad_background, *grad_values;  // [P,3], [P], [P,3], [P,channels] or null
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
    const T seen = opacity * sigmoid_of(a.logits[3 * p + c]) + (T(1) - opacity) * behind[c];
    a.out[3 * p + c] = a.values ? seen + a.values[p * a.channels + c] : seen;
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
    along += grad * (lit - behind[c]);
  }
  a.grad_opacity[p] = along;
  if (!a.grad_values) return;
  for (int64_t c = 0; c < a.channels; ++c) a.grad_values[p * a.channels + c] = c < 3 ? a.grad_out[3 * p + c] : T(0);
}

}  // namespace nerf
