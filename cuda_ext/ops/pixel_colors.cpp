// pixel_colors and its backward.
#include "../portable/pixel_colors.h"

#include "operation.h"

namespace nerf {
namespace {

void check_pixel_colors(const Tensor& logits, const Tensor& opacity, const Tensor& background,
                        const std::optional<Tensor>& diffuse) {
  check_floating("logits", logits);
  const ScalarType dtype = logits.scalar_type();
  check_argument("logits", logits, logits, dtype, {kAny, 3});
  const int64_t pixels = logits.size(0);
  check_argument("opacity", opacity, logits, dtype, {pixels});
  check_argument("background", background, logits, dtype, background.dim() == 1 ? Shape{3} : Shape{pixels, 3});
  if (diffuse) check_argument("diffuse", *diffuse, logits, dtype, {pixels, 3});
}

template <class T>
PixelColorsArgs<T> pixel_colors_arguments(const Tensor& logits, const Tensor& opacity, const Tensor& background,
                                          const std::optional<Tensor>& diffuse) {
  PixelColorsArgs<T> a = {};
  a.logits = data<T>(logits);
  a.opacity = data<T>(opacity);
  a.background = data<T>(background);
  a.diffuse = diffuse ? data<T>(*diffuse) : nullptr;
  a.pixels = logits.size(0);
  a.background_stride = background.dim() == 1 ? 0 : 3;
  return a;
}

std::optional<Tensor> dense_if_given(const std::optional<Tensor>& x) {
  return x ? std::optional<Tensor>(dense(*x)) : std::nullopt;
}

}  // namespace

Tensor pixel_colors(const Tensor& logits, const Tensor& opacity, const Tensor& background,
                    const std::optional<Tensor>& diffuse) {
  check_pixel_colors(logits, opacity, background, diffuse);
  const Tensor l = dense(logits), o = dense(opacity), b = dense(background);
  const std::optional<Tensor> d = dense_if_given(diffuse);
  Tensor out = empty(l, {l.size(0), 3}, l.scalar_type());
  with_scalar(l, [&](auto scalar) {
    using T = decltype(scalar);
    PixelColorsArgs<T> a = pixel_colors_arguments<T>(l, o, b, d);
    a.out = data<T>(out);
    NERF_CALL(l, pixel_colors, a);
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> pixel_colors_backward(const Tensor& grad_out, const Tensor& logits,
                                                                 const Tensor& opacity, const Tensor& background,
                                                                 const std::optional<Tensor>& diffuse) {
  check_pixel_colors(logits, opacity, background, diffuse);
  check_argument("grad_out", grad_out, logits, logits.scalar_type(), {logits.size(0), 3});
  const Tensor g = dense(grad_out), l = dense(logits), o = dense(opacity), b = dense(background);
  const std::optional<Tensor> d = dense_if_given(diffuse);
  const auto colors = [&] { return empty(l, {l.size(0), 3}, l.scalar_type()); };
  Tensor grad_logits = colors(), grad_background = colors(), grad_diffuse = colors();
  Tensor grad_opacity = empty(l, {l.size(0)}, l.scalar_type());
  with_scalar(l, [&](auto scalar) {
    using T = decltype(scalar);
    PixelColorsArgs<T> a = pixel_colors_arguments<T>(l, o, b, d);
    a.grad_out = data<T>(g);
    a.grad_logits = data<T>(grad_logits);
    a.grad_opacity = data<T>(grad_opacity);
    a.grad_background = data<T>(grad_background);
    a.grad_diffuse = data<T>(grad_diffuse);
    NERF_CALL(l, pixel_colors_backward, a);
  });
  return {grad_logits, grad_opacity, grad_background, grad_diffuse};
}

NERF_OPERATION(pixel_colors, "(Tensor logits, Tensor opacity, Tensor background, Tensor? diffuse) -> Tensor")
NERF_OPERATION(pixel_colors_backward,
               "(Tensor grad_out, Tensor logits, Tensor opacity, Tensor background, Tensor? diffuse) -> (Tensor "
               "grad_logits, Tensor grad_opacity, Tensor grad_background, Tensor grad_diffuse)")

}  // namespace nerf
