// Compositing the samples of one ray front to back, and its gradient back to front (Max 1995; Mildenhall 2020, eq. 3).
//
//   alpha_i = 1 - exp(-density_i * delta_i)        T_i = prod_{j<i} (1 - alpha_j)        weight_i = T_i * alpha_i
//   values = sum weight_i values_i,  opacity = sum weight_i,  depth = sum weight_i t_mid_i
//
// Samples behind T_i < min_transmittance weigh nothing. With g_i = d loss / d weight_i summed over all outputs,
//
//   d loss / d density_i = delta_i * (T_{i+1} * g_i - sum_{j>i} weight_j g_j)
//
// since raising density_i adds T_{i+1} * delta_i to weight_i and takes the share delta_i from every later weight.
// T_{i+1} = T_end + sum_{j>i} weight_j, so the sweep from the back needs the saved weights and T_end alone: no scan, no
// division by 1 - alpha, and behind the last weight the gradient is exactly zero.
//
// The gradients of a sample can be multiplied by min(1, t_mid / full_gradient_from)^2, so that what is near a camera
// learns slowly (Philip & Deschaintre 2023).
#pragma once

#include <cstring>
#include <initializer_list>

#include "dot.h"

namespace nerf {

// S: as which values and their gradients are stored.
template <class S>
struct CompositeArgs {
  using T = Wide<S>;
  const T* density;            // [M] per world unit, >= 0
  const S* values;             // [M,C]
  const T *t_starts, *t_ends;  // [M] world units
  const int64_t* ray_offsets;  // [R+1]
  int64_t num_rays, num_samples, channels;
  T min_transmittance, full_gradient_from;
  T *out_values, *opacity, *depth;                                      // [R,C], [R], [R]
  T* weights;                                                           // [M] written forward, read backward
  const T *grad_out_values, *grad_opacity, *grad_depth, *grad_weights;  // as the outputs; the last two may be null, zeros
  T* grad_density;                                                      // [M]
  S* grad_values;                                                       // [M,C]

  HOST_DEVICE int64_t offset(int64_t r) const { return clamp<int64_t>(ray_offsets[r], 0, num_samples); }
  // What the gradients of a sample are multiplied by.
  HOST_DEVICE T gradient_scale(T t_mid) const {
    if (!(full_gradient_from > T(0))) return T(1);
    const T share = min2(t_mid / full_gradient_from, T(1));
    return share * share;
  }
};

#ifndef __CUDA_ARCH__
// exp(y) = power * (1 + rest), for y from -87 to 87, of what lies beyond the nearest of these. Without a call: one takes
// longer than all else of a sample, and is no vector.
struct Exponential {
  float power, rest;
};

inline Exponential exponential(float y) {
  // exp(y) = 2^n exp(r) with |r| <= ln(2) / 2, where eight terms of exp's series are exact to the last bit. Adding kRound
  // leaves n in the lowest bits.
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f, kRound = 12582912.0f;
  y = y > 87.0f ? 87.0f : y < -87.0f ? -87.0f : y;
  const float rounded = y * kLog2E + kRound, n = rounded - kRound, r = y - n * kLn2High - n * kLn2Low;
  uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  bits = (bits + 127u) << 23;
  float power;  // 2^n
  std::memcpy(&power, &bits, sizeof power);
  float tail = 1.0f / 5040;
  for (const float term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f}) tail = tail * r + term;
  return {power, r + r * r * tail};
}
#endif

// 1 - exp(-x) without losing the digits of a small x.
HOST_DEVICE float opacity_of(float optical_depth) {
#ifdef __CUDA_ARCH__
  return -expm1f(-optical_depth);
#else
  const Exponential e = exponential(-optical_depth);
  return (1.0f - e.power) - e.power * e.rest;
#endif
}
HOST_DEVICE double opacity_of(double optical_depth) { return -expm1(-optical_depth); }

template <class S>
HOST_DEVICE void composite_ray(const CompositeArgs<S>& a, int64_t r) {
  using T = Wide<S>;
  T* __restrict__ out = a.out_values + r * a.channels;
  for (int64_t c = 0; c < a.channels; ++c) out[c] = T(0);
  T transmittance = T(1), opacity = T(0), depth = T(0);
  const int64_t begin = a.offset(r), end = a.offset(r + 1);
  for (int64_t i = begin; i < end; ++i) {
    if (transmittance < a.min_transmittance) {
      a.weights[i] = T(0);
      continue;
    }
    const T alpha = opacity_of(a.density[i] * (a.t_ends[i] - a.t_starts[i]));
    const T weight = transmittance * alpha;
    a.weights[i] = weight;
    opacity += weight;
    depth += weight * (T(0.5) * (a.t_starts[i] + a.t_ends[i]));
    const S* __restrict__ values = a.values + i * a.channels;
    for (int64_t c = 0; c < a.channels; ++c) out[c] += weight * widen(values[c]);
    transmittance *= T(1) - alpha;
  }
  a.opacity[r] = opacity;
  a.depth[r] = depth;
}

// What one unit of weight_i is worth to the loss.
template <class S, class T = Wide<S>>
HOST_DEVICE T weight_gradient(const CompositeArgs<S>& a, int64_t r, int64_t i) {
  T g = a.grad_opacity[r];
  if (a.grad_weights) g = a.grad_weights[i] + g;
  if (a.grad_depth) g += a.grad_depth[r] * (T(0.5) * (a.t_starts[i] + a.t_ends[i]));
  return g + dot(a.grad_out_values + r * a.channels, a.values + i * a.channels, a.channels);
}

// Of a sample that does not count.
template <class S>
HOST_DEVICE void clear_gradients(const CompositeArgs<S>& a, int64_t i) {
  a.grad_density[i] = 0;
  for (int64_t c = 0; c < a.channels; ++c) a.grad_values[i * a.channels + c] = S{};
}

template <class S>
HOST_DEVICE void composite_ray_backward(const CompositeArgs<S>& a, int64_t r) {
  using T = Wide<S>;
  const T* __restrict__ grad_out = a.grad_out_values + r * a.channels;
  // Samples that do not count form the tail of the ray; the walk from the front finds where it begins, and T_end.
  T after = T(1), later = T(0);
  const int64_t begin = a.offset(r), ray_end = a.offset(r + 1);
  int64_t end = begin;
  for (; end < ray_end && !(after < a.min_transmittance); ++end)
    after *= T(1) - opacity_of(a.density[end] * (a.t_ends[end] - a.t_starts[end]));
  for (int64_t i = ray_end - 1; i >= end; --i) clear_gradients(a, i);
  for (int64_t i = end - 1; i >= begin; --i) {
    const T weight = a.weights[i], g = weight_gradient(a, r, i);
    const T scale = a.gradient_scale(T(0.5) * (a.t_starts[i] + a.t_ends[i]));
    a.grad_density[i] = (a.t_ends[i] - a.t_starts[i]) * (after * g - later) * scale;
    S* __restrict__ grad_values = a.grad_values + i * a.channels;
    for (int64_t c = 0; c < a.channels; ++c) grad_values[c] = narrow<S>(weight * scale * grad_out[c]);
    later += weight * g;
    after += weight;
  }
}

}  // namespace nerf
