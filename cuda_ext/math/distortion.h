// Distortion of the weights along one ray (Barron et al. 2022, eq. 15), and its gradient.
//
//   loss = sum_ij weight_i weight_j |mid_i - mid_j| + 1/3 sum_i weight_i^2 length_i
//
// The samples of a ray come front to back, so the walk can carry reach_i = sum_{j<i} weight_j (mid_i - mid_j):
// from one sample to the next it grows by the weight passed times the gap. This takes O(N) instead of O(N^2) steps, as
// with prefix sums (Sun et al. 2022b), and adds positive terms alone: nothing cancels, however far away the samples lie.
//
//   d loss / d weight_i = 2 (reach from the front + reach from the back) + 2/3 weight_i length_i
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct DistortionArgs {
  const T* weights;            // [M]
  const T *t_starts, *t_ends;  // [M] rising along each ray
  const int64_t* ray_offsets;  // [R+1]
  int64_t num_rays, num_samples;
  T* loss;             // [R]  forward
  const T* grad_loss;  // [R]  backward
  T* grad_weights;     // [M]

  HOST_DEVICE int64_t offset(int64_t r) const { return clamp<int64_t>(ray_offsets[r], 0, num_samples); }

  // Between the midpoints of samples i - 1 and i; the differences of neighbors are exact, those of midpoints are not.
  HOST_DEVICE T gap(int64_t i) const {
    return T(0.5) * ((t_starts[i] - t_starts[i - 1]) + (t_ends[i] - t_ends[i - 1]));
  }
  HOST_DEVICE T length(int64_t i) const { return t_ends[i] - t_starts[i]; }
};

template <class T>
HOST_DEVICE T distortion_slope(T grad_loss, T reach, T weight, T length) {
  return grad_loss * (T(2) * reach + T(2) / T(3) * weight * length);
}

template <class T>
HOST_DEVICE void distortion_ray(const DistortionArgs<T>& a, int64_t r) {
  T pairs = T(0), own = T(0), passed = T(0), reach = T(0);
  const int64_t begin = a.offset(r), end = a.offset(r + 1);
  for (int64_t i = begin; i < end; ++i) {
    const T weight = a.weights[i];
    if (i > begin) reach += passed * a.gap(i);
    pairs += weight * reach;
    own += weight * weight * a.length(i);
    passed += weight;
  }
  a.loss[r] = T(2) * pairs + own / T(3);
}

// The way to the back leaves its reach where the way to the front finds it.
template <class T>
HOST_DEVICE void distortion_ray_backward(const DistortionArgs<T>& a, int64_t r) {
  const int64_t begin = a.offset(r), end = a.offset(r + 1);
  T passed = T(0), reach = T(0);
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) reach += passed * a.gap(i);
    a.grad_weights[i] = reach;
    passed += a.weights[i];
  }
  passed = reach = T(0);
  for (int64_t i = end - 1; i >= begin; --i) {
    if (i + 1 < end) reach += passed * a.gap(i + 1);
    a.grad_weights[i] = distortion_slope(a.grad_loss[r], a.grad_weights[i] + reach, a.weights[i], a.length(i));
    passed += a.weights[i];
  }
}

}  // namespace nerf
