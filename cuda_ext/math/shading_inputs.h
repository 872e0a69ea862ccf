// The inputs of a network that shades pixels: features of the surface that a pixel shows, then the encoded view direction.
//
//   inputs[p] = (values[p] / m + noise_scale noise[p],  d, sin(2^k d), cos(2^k d) for k = 0 .. F-1,  0 ...)
//
// with m = max(opacity[p], min_opacity): composited values are features times opacity. The encoding of the direction d is
// that of Mildenhall et al. 2020, eq. 4, without pi. Columns behind it are padding. A pixel without opacity has zeros.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct ShadingInputsArgs {
  const T* values;      // [P,C]
  const T* opacity;     // [P]
  const T* directions;  // [P,3]
  const T* noise;       // [P,C] or null
  T noise_scale, min_opacity;
  int64_t pixels, channels, frequencies, width;  // width >= channels + 3 + 6 frequencies
  bool write_empty;                              // also the zeros of pixels without opacity
  T* out;                                        // [P,width] forward
  const T* grad_out;                             // [P,width] backward
  T *grad_values, *grad_opacity;                 // [P,C], [P]
};

// NaN stays NaN.
template <class T>
HOST_DEVICE T bounded_opacity(const ShadingInputsArgs<T>& a, int64_t p) {
  return a.opacity[p] < a.min_opacity ? a.min_opacity : a.opacity[p];
}

#ifdef __CUDA_ARCH__
template <class T>
struct SineCosine {
  T sine, cosine;
};

__device__ inline SineCosine<double> sine_cosine(double angle) {
  SineCosine<double> both;
  sincos(angle, &both.sine, &both.cosine);
  return both;
}

// Within 1e-6: by the special function unit, from what whole turns leave of the angle. Turns are taken off in two steps, as
// 2 pi is no float.
__device__ inline SineCosine<float> sine_cosine(float angle) {
  if (std::abs(angle) < 1000.f) {
    const float turns = rintf(angle * 0.15915494f);
    const float left = fmaf(turns, 1.7484556e-7f, fmaf(turns, -6.2831855f, angle));
    return {__sinf(left), __cosf(left)};
  }
  SineCosine<float> both;
  sincosf(angle, &both.sine, &both.cosine);
  return both;
}
#endif

// Column j of the encoding of a direction with F frequencies, 0 behind it. 32 bits, whose divisions are cheaper.
template <class T>
HOST_DEVICE T encoded_direction(const T* direction, unsigned j, unsigned frequencies) {
  if (j < 3) return direction[j];
  const unsigned k = j - 3, half = 3 * frequencies;
  if (k >= 2 * half) return T(0);
  const unsigned i = k < half ? k : k - half;
  const T angle = direction[i % 3] * T(1u << (i / 3));
#ifdef __CUDA_ARCH__
  const SineCosine<T> both = sine_cosine(angle);  // lanes that want the sine would wait for those that want the cosine
  return k < half ? both.sine : both.cosine;
#else
  return k < half ? std::sin(angle) : std::cos(angle);
#endif
}

template <class T>
HOST_DEVICE T shading_input(const ShadingInputsArgs<T>& a, int64_t p, unsigned column) {
  const unsigned channels = unsigned(a.channels);
  if (column >= channels) return encoded_direction(a.directions + 3 * p, column - channels, unsigned(a.frequencies));
  const int64_t i = p * a.channels + column;
  const T feature = a.values[i] / bounded_opacity(a, p);
  return a.noise ? feature + a.noise_scale * a.noise[i] : feature;
}

constexpr int kInputsAtOnce = 4;

// What is written at once where rows are a multiple of it.
template <class T>
struct alignas(kInputsAtOnce * sizeof(T)) InputPack {
  T v[kInputsAtOnce];
};

// kInputsAtOnce columns of a pixel from that one on, or as many as its row has.
template <class T>
HOST_DEVICE void write_shading_inputs(const ShadingInputsArgs<T>& a, int64_t p, unsigned first) {
  const unsigned width = unsigned(a.width);
  const bool empty = a.opacity[p] == T(0);
  if (empty && !a.write_empty) return;
  InputPack<T> pack = {};
  if (!empty)
    NERF_UNROLL for (int c = 0; c < kInputsAtOnce; ++c)
      if (first + c < width) pack.v[c] = shading_input(a, p, first + c);
  T* out = a.out + p * a.width + first;
  if (width % kInputsAtOnce == 0) {
    *reinterpret_cast<InputPack<T>*>(out) = pack;
  } else {
    for (int c = 0; c < kInputsAtOnce; ++c)
      if (first + c < width) out[c] = pack.v[c];
  }
}

// The gradients of one pixel. Where opacity is below its bound nothing depends on it.
template <class T>
HOST_DEVICE void shading_inputs_gradient(const ShadingInputsArgs<T>& a, int64_t p) {
  const T m = bounded_opacity(a, p);
  const T* grad = a.grad_out + p * a.width;
  const bool empty = a.opacity[p] == T(0);
  T along = T(0);
  for (int64_t c = 0; c < a.channels; ++c) {
    const int64_t i = p * a.channels + c;
    a.grad_values[i] = empty ? T(0) : grad[c] / m;
    along += grad[c] * (a.values[i] / m);
  }
  a.grad_opacity[p] = a.opacity[p] < a.min_opacity ? T(0) : -along / m;
}

}  // namespace nerf
