// Density from raw density: softplus(raw + shift) * scale (Sun et al. 2022, eq. 9), and its slope.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct ActivateDensityArgs {
  const T* raw;  // [N]
  T shift, scale;
  int64_t count;
  T* out;             // [N] forward
  const T* grad_out;  // [N] backward
  T* grad_raw;        // [N]
};

// log(1 + exp(x)), x itself where a float cannot tell them apart; NaN stays NaN.
HOST_DEVICE float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }
HOST_DEVICE double softplus(double x) { return x > 40.0 ? x : log1p(exp(x)); }

template <class T>
HOST_DEVICE T softplus_slope(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

}  // namespace nerf
