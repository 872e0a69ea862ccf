// One parameter's step of Adam (Kingma & Ba 2015, algorithm 1), skipped where the gradient is exactly zero.
//
// A voxel that no ray of the batch met has gradient zero; leaving its moments alone keeps it from drifting on old
// momentum and saves the traffic (DirectVoxGO's masked Adam). The gradient is cleared as it is read: it stays where it is,
// ready for the next batch, and nobody has to fill a whole grid with zeros.
//
// A gradient whose square is not finite is cleared like any other and changes nothing; so does a step whose number is 0:
// the caller says on the device that it is to be left out, without waiting for it.
#pragma once

#include "stored.h"
#include "total_variation.h"

namespace nerf {

template <class S>
struct AdamArgs {
  using T = Wide<S>;
  Value<S>* param;                  // [V,C]
  Moment<S> *exp_avg, *exp_avg_sq;  // [num_rows,C]: moments of the rows that are visited, in their order
  Gradient<S>* grad;                // [V,C]
  int64_t channels;                 // C
  int64_t all_rows;                 // V
  const int64_t* rows;              // [num_rows] those to visit, each once; null: all
  int64_t num_rows;
  const float* lr;  // [lr_count]: one, or one per channel
  int64_t lr_count;
  const float* step;  // [1] number of this step, from 1; 0: the step is left out
  double beta1, beta2, eps;
};

// A step that first adds the total variation of param to the gradients that are not zero.
template <class S>
struct AdamSmoothArgs {
  // That stores values and gradients as S does.
  using Smoothed = std::conditional_t<kIsOneOf<S, ShortValues>, S, Wide<S>>;

  AdamArgs<S> adam;
  // Of the same param and grad; rows: the vertex of each row that is visited, in their order.
  TotalVariationArgs<Smoothed> variation;
};

template <class T>
struct AdamScale {
  T first, second;  // 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
  T limit;          // only gradients with a smaller square change anything
};

template <class S>
HOST_DEVICE AdamScale<Wide<S>> adam_scale(const AdamArgs<S>& a) {
  using T = Wide<S>;
  const double t = double(*a.step);
  const T limit = t > 0 ? T(INFINITY) : T(0);
  return {T(1.0 / (1.0 - pow(a.beta1, t))), T(1.0 / sqrt(1.0 - pow(a.beta2, t))), limit};
}

// The quotient of an update. On a GPU within a few units in the last place: correctly rounded roots and quotients took
// a fifth of the instructions of a touched row.
HOST_DEVICE double adam_quotient(double numerator, double square, double scale, double eps) {
  return numerator / (std::sqrt(square) * scale + eps);
}
HOST_DEVICE float adam_quotient(float numerator, float square, float scale, float eps) {
#ifdef __CUDA_ARCH__
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(square));
  return __fdividef(numerator, root * scale + eps);
#else
  return numerator / (std::sqrt(square) * scale + eps);
#endif
}

// The step of a value p with moments m, v and gradient g; without a gradient all three stay as they are.
template <class S, class T>
HOST_DEVICE void adam_value(const AdamArgs<S>& a, const AdamScale<T>& scale, T lr, T g, T& p, T& m, T& v) {
  const T m_new = T(a.beta1) * m + T(1 - a.beta1) * g;
  const T square = g * g, v_new = T(a.beta2) * v + T(1 - a.beta2) * square;
  const T change = adam_quotient(lr * m_new * scale.first, v_new, scale.second, T(a.eps));
  // Choosing instead of branching lets a compiler handle a whole row at once.
  const bool touched = g != T(0) && square < scale.limit;  // which NaN is not
  m = touched ? m_new : m;
  v = touched ? v_new : v;
  p -= touched ? change : T(0);
}

// The same of numbers as they are stored. random: the bits that short ones are rounded by (rounding.h).
template <class S, class T>
HOST_DEVICE void adam_stored(const AdamArgs<S>& a, const AdamScale<T>& scale, T lr, T g, Value<S>& p, Moment<S>& m,
                             Moment<S>& v, uint32_t random) {
  T wide_p = widen(p), wide_m = widen(m), wide_v = widen(v);
  adam_value(a, scale, lr, g, wide_p, wide_m, wide_v);
  m = narrow_at_random<Moment<S>>(wide_m, random);
  v = narrow_at_random<Moment<S>>(wide_v, random >> 16);
  if constexpr (kIsOneOf<Value<S>, Float16>) p = narrow_at_random<Float16>(wide_p, hashed(random));
  else p = wide_p;
}

// The same for value i of the grid, whose moments have a place of their own.
template <class S, class T>
HOST_DEVICE void adam_update(const AdamArgs<S>& a, const AdamScale<T>& scale, int64_t i, int64_t moment, T lr,
                             uint32_t random = 0) {
  Value<S> p = a.param[i];
  Moment<S> m = a.exp_avg[moment], v = a.exp_avg_sq[moment];
  adam_stored(a, scale, lr, T(widen(a.grad[i])), p, m, v, random);
  a.param[i] = p;
  a.exp_avg[moment] = m;
  a.exp_avg_sq[moment] = v;
  a.grad[i] = Gradient<S>{};
}

}  // namespace nerf
