// pixel_colors and its backward.
#include "../portable/pixel_colors.h"

#include "operation.h"

namespace nerf {
namespace {

void check_pixel_colors(const Tensor& logits, const Tensor& opacity, const Tensor& background,
                        const std::optional<Tensor>& values) {
  check_floating("logits", logits);
  const ScalarType dtype = logits.scalar_type();
  check_argument("logits", logits, logits, dtype, {kAny, 3});
  const int64_t pixels = logits.size(0);
  check_argument("opacity", opacity, logits, dtype, {pixels});
  check_argument("background", background, logits, dtype, background.dim() == 1 ? Shape{3} : Shape{pixels, 3});
  if (!values) return;
  check_argument("values", *values, logits, dtype, {pixels, kAny});
  if (values->size(1) < 3)
    reject("values has shape " + shape_name(values->sizes()) + ", expected at least 3 columns, the diffuse colors");
}

template <class T>
PixelColorsArgs<T> pixel_colors_arguments(const Tensor& logits, const Tensor& opacity, const Tensor& background,
                                          int64_t channels) {
  PixelColorsArgs<T> a = {};
  a.logits = data<T>(logits);
  a.opacity = data<T>(opacity);
  a.background = data<T>(background);
  a.pixels = logits.size(0);
  a.background_stride = background.dim() == 1 ? 0 : 3;
  a.channels = channels;
  return a;
}

}  // namespace

Tensor pixel_colors(const Tensor& logits, const Tensor& opacity, const Tensor& background,
                    const std::optional<Tensor>& values) {
  check_pixel_colors(logits, opacity, background, values);
  const Tensor l = dense(logits), o = dense(opacity), b = dense(background);
  const std::optional<Tensor> v = values ? std::optional<Tensor>(dense(*values)) : std::nullopt;
  Tensor out = empty(l, {l.size(0), 3}, l.scalar_type());
  with_scalar(l, [&](auto scalar) {
    using T = decltype(scalar);
    PixelColorsArgs<T> a = pixel_colors_arguments<T>(l, o, b, v ? v->size(1) : 0);
    a.values = v ? data<T>(*v) : nullptr;
    a.out = data<T>(out);
    NERF_CALL(l, pixel_colors, a);
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> pixel_colors_backward(const Tensor& grad_out, const Tensor& logits,
                                                                 const Tensor& opacity, const Tensor& background,
                                                                 const std::optional<Tensor>& values) {
  check_pixel_colors(logits, opacity, background, values);
  check_argument("grad_out", grad_out, logits, logits.scalar_type(), {logits.size(0), 3});
  const Tensor g = dense(grad_out), l = dense(logits), o = dense(opacity), b = dense(background);
  const int64_t channels = values ? values->size(1) : 0;  // of the values themselves no gradient asks
  const auto rows = [&](int64_t columns) { return empty(l, {l.size(0), columns}, l.scalar_type()); };
  Tensor grad_logits = rows(3), grad_background = rows(3), grad_values = values ? rows(channels) : no_gradient(l);
  Tensor grad_opacity = empty(l, {l.size(0)}, l.scalar_type());
  with_scalar(l, [&](auto scalar) {
    using T = decltype(scalar);
    PixelColorsArgs<T> a = pixel_colors_arguments<T>(l, o, b, channels);
    a.grad_out = data<T>(g);
    a.grad_logits = data<T>(grad_logits);
    a.grad_opacity = data<T>(grad_opacity);
    a.grad_background = data<T>(grad_background);
    a.grad_values = values ? data<T>(grad_values) : nullptr;
    NERF_CALL(l, pixel_colors_backward, a);
  });
  return {grad_logits, grad_opacity, grad_background, grad_values};
}

NERF_OPERATION(pixel_colors, "(Tensor logits, Tensor opacity, Tensor background, Tensor? values) -> Tensor")
NERF_OPERATION(pixel_colors_backward,
               "(Tensor grad_out, Tensor logits, Tensor opacity, Tensor background, Tensor? values) -> (Tensor "
               "grad_logits, Tensor grad_opacity, Tensor grad_background, Tensor grad_values)")

}  // namespace nerf
