// shading_inputs and its backward.
#include "../portable/shading_inputs.h"

#include "operation.h"

namespace nerf {
namespace {

constexpr int64_t kMostFrequencies = 16;  // of float32, whose sines of larger angles mean nothing

template <class T>
ShadingInputsArgs<T> shading_arguments(const Tensor& values, const Tensor& opacity, double min_opacity) {
  ShadingInputsArgs<T> a = {};
  a.values = data<T>(values);
  a.opacity = data<T>(opacity);
  a.min_opacity = T(min_opacity);
  a.pixels = values.size(0);
  a.channels = values.size(1);
  return a;
}

void check_composited(const Tensor& values, const Tensor& opacity) {
  check_floating("values", values);
  check_argument("values", values, values, values.scalar_type(), {kAny, kAny});
  check_channels("values", values.size(1));
  check_argument("opacity", opacity, values, values.scalar_type(), {values.size(0)});
}

}  // namespace

Tensor shading_inputs(const Tensor& values, const Tensor& opacity, const Tensor& directions,
                      const std::optional<Tensor>& noise, double noise_scale, double min_opacity, int64_t frequencies,
                      int64_t width, bool write_empty) {
  check_composited(values, opacity);
  const ScalarType dtype = values.scalar_type();
  check_argument("directions", directions, values, dtype, {values.size(0), 3});
  if (noise) check_argument("noise", *noise, values, dtype, {values.size(0), values.size(1)});
  if (frequencies < 0 || frequencies > kMostFrequencies)
    reject("frequencies is " + std::to_string(frequencies) + ", expected 0 to " + std::to_string(kMostFrequencies));
  const int64_t least = values.size(1) + 3 + 6 * frequencies;
  if (width < least) reject("width is " + std::to_string(width) + ", expected at least " + std::to_string(least));
  product("width", {values.size(0), width});
  const Tensor v = dense(values), o = dense(opacity), d = dense(directions), n = noise ? dense(*noise) : v;
  Tensor out = empty(v, {v.size(0), width}, dtype);
  with_scalar(v, [&](auto scalar) {
    using T = decltype(scalar);
    ShadingInputsArgs<T> a = shading_arguments<T>(v, o, min_opacity);
    a.directions = data<T>(d);
    a.noise = noise ? data<T>(n) : nullptr;
    a.noise_scale = T(noise_scale);
    a.frequencies = frequencies;
    a.width = width;
    a.write_empty = write_empty;
    a.out = data<T>(out);
    NERF_CALL(v, shading_inputs, a);
  });
  return out;
}

std::tuple<Tensor, Tensor> shading_inputs_backward(const Tensor& grad_out, const Tensor& values, const Tensor& opacity,
                                                   double min_opacity) {
  check_composited(values, opacity);
  const ScalarType dtype = values.scalar_type();
  check_argument("grad_out", grad_out, values, dtype, {values.size(0), kAny});
  if (grad_out.size(1) < values.size(1))
    reject("grad_out has " + std::to_string(grad_out.size(1)) + " columns, expected at least " +
           std::to_string(values.size(1)));
  const Tensor g = dense(grad_out), v = dense(values), o = dense(opacity);
  Tensor grad_values = empty(v, {v.size(0), v.size(1)}, dtype), grad_opacity = empty(v, {v.size(0)}, dtype);
  with_scalar(v, [&](auto scalar) {
    using T = decltype(scalar);
    ShadingInputsArgs<T> a = shading_arguments<T>(v, o, min_opacity);
    a.width = g.size(1);
    a.grad_out = data<T>(g);
    a.grad_values = data<T>(grad_values);
    a.grad_opacity = data<T>(grad_opacity);
    NERF_CALL(v, shading_inputs_backward, a);
  });
  return {grad_values, grad_opacity};
}

NERF_OPERATION(shading_inputs,
               "(Tensor values, Tensor opacity, Tensor directions, Tensor? noise, float noise_scale, float min_opacity, "
               "int frequencies, int width, bool write_empty=True) -> Tensor")
NERF_OPERATION(shading_inputs_backward,
               "(Tensor grad_out, Tensor values, Tensor opacity, float min_opacity) -> (Tensor grad_values, Tensor "
               "grad_opacity)")

}  // namespace nerf
