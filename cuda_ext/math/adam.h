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
  T* param;                 // [V,C]
  T *exp_avg, *exp_avg_sq;  // [num_rows,C]: moments of the rows that are visited, in their order
  T* grad;                  // [V,C]
  int64_t channels;         // C
  int64_t all_rows;         // V
  const int64_t* rows;      // [num_rows] those to visit, each once; null: all
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

// The step of a value p with moments m, v and gradient g; without a gradient all three stay as they are.
template <class T>
HOST_DEVICE void adam_value(const AdamArgs<T>& a, const AdamScale<T>& scale, T lr, T g, T& p, T& m, T& v) {
  const T m_new = T(a.beta1) * m + T(1 - a.beta1) * g;
  const T square = g * g, v_new = T(a.beta2) * v + T(1 - a.beta2) * square;
  const T change = lr * m_new * scale.first / (std::sqrt(v_new) * scale.second + T(a.eps));
  // Choosing instead of branching lets a compiler handle a whole row at once.
  const bool touched = g != T(0) && square < scale.limit;  // which NaN is not
  m = touched ? m_new : m;
  v = touched ? v_new : v;
  p -= touched ? change : T(0);
}

// The same for value i of the grid, whose moments have a place of their own.
template <class T>
HOST_DEVICE void adam_update(const AdamArgs<T>& a, const AdamScale<T>& scale, int64_t i, int64_t moment, T lr) {
  T p = a.param[i], m = a.exp_avg[moment], v = a.exp_avg_sq[moment];
  adam_value(a, scale, lr, a.grad[i], p, m, v);
  a.param[i] = p;
  a.exp_avg[moment] = m;
  a.exp_avg_sq[moment] = v;
  a.grad[i] = T(0);
}

}  // namespace nerf
