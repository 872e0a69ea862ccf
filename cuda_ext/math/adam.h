// One parameter's step of Adam (Kingma & Ba 2015, algorithm 1), skipped where the gradient is exactly zero.
//
// A voxel that no ray of the batch met has gradient zero; leaving its moments alone keeps it from drifting on old
// momentum and saves the traffic (DirectVoxGO's masked Adam).
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct AdamArgs {
  T *param, *exp_avg, *exp_avg_sq;  // [P]
  const T* grad;                    // [P]
  int64_t count;
  const float* lr;  // [lr_count]: one, or one per channel (the last dimension of param)
  int64_t lr_count;
  const float* step;  // [1] number of this step, from 1
  double beta1, beta2, eps;
};

template <class T>
struct AdamScale {
  T first, second;  // 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
};

template <class T>
HOST_DEVICE AdamScale<T> adam_scale(const AdamArgs<T>& a) {
  const double t = double(*a.step);
  return {T(1.0 / (1.0 - pow(a.beta1, t))), T(1.0 / sqrt(1.0 - pow(a.beta2, t)))};
}

template <class T>
HOST_DEVICE void adam_update(const AdamArgs<T>& a, const AdamScale<T>& scale, int64_t i) {
  const T g = a.grad[i];
  if (g == T(0)) return;
  const T m = a.exp_avg[i] = T(a.beta1) * a.exp_avg[i] + T(1 - a.beta1) * g;
  const T v = a.exp_avg_sq[i] = T(a.beta2) * a.exp_avg_sq[i] + T(1 - a.beta2) * g * g;
  const T lr = T(a.lr[a.lr_count == 1 ? 0 : i % a.lr_count]);
  a.param[i] -= lr * m * scale.first / (sqrt(v) * scale.second + T(a.eps));
}

}  // namespace nerf
