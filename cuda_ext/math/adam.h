// One parameter's step of Adam (Kingma & Ba 2015, algorithm 1), skipped where the gradient is exactly zero.
//
// A voxel that no ray of the batch met has gradient zero; leaving its moments alone keeps it from drifting on old
// momentum and saves the traffic (DirectVoxGO's masked Adam). The gradient is cleared as it is read: it stays where it is,
// ready for the next batch, and nobody has to fill a whole grid with zeros.
//
// A gradient whose square is not finite is cleared like any other and changes nothing; so does a step whose number is 0:
// the caller says on the device that it is to be left out, without waiting for it.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct AdamArgs {
  T *param, *exp_avg, *exp_avg_sq, *grad;  // [V,C]
  int64_t channels;                        // C
  int64_t all_rows;                        // V
  const int64_t* rows;                     // [num_rows] those to visit, each once; null: all
  int64_t num_rows;
  const float* lr;  // [lr_count]: one, or one per channel
  int64_t lr_count;
  const float* step;  // [1] number of this step, from 1; 0: the step is left out
  double beta1, beta2, eps;
};

template <class T>
struct AdamScale {
  T first, second;  // 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
  T limit;          // only gradients with a smaller square change anything
};

template <class T>
HOST_DEVICE AdamScale<T> adam_scale(const AdamArgs<T>& a) {
  const double t = double(*a.step);
  const T limit = t > 0 ? T(INFINITY) : T(0);
  return {T(1.0 / (1.0 - pow(a.beta1, t))), T(1.0 / sqrt(1.0 - pow(a.beta2, t))), limit};
}

template <class T>
HOST_DEVICE void adam_update(const AdamArgs<T>& a, const AdamScale<T>& scale, int64_t i, T lr) {
  const T g = a.grad[i], m_old = a.exp_avg[i], v_old = a.exp_avg_sq[i];
  const T m = T(a.beta1) * m_old + T(1 - a.beta1) * g;
  const T square = g * g, v = T(a.beta2) * v_old + T(1 - a.beta2) * square;
  const T change = lr * m * scale.first / (std::sqrt(v) * scale.second + T(a.eps));
  // Choosing instead of branching lets a compiler handle a whole row at once.
  const bool touched = g != T(0) && square < scale.limit;  // which NaN is not
  a.exp_avg[i] = touched ? m : m_old;
  a.exp_avg_sq[i] = touched ? v : v_old;
  a.param[i] -= touched ? change : T(0);
  a.grad[i] = T(0);
}

}  // namespace nerf
