// pair_ssim and its backward.
#include "../portable/pair_ssim.h"

#include "operation.h"

namespace nerf {
namespace {

void check_pair_ssim(const Tensor& rgb, const Tensor& target) {
  check_floating("rgb", rgb);
  check_argument("rgb", rgb, rgb, rgb.scalar_type(), {kAny, 3});
  check_argument("target", target, rgb, rgb.scalar_type(), {rgb.size(0), 3});
}

template <class T>
PairSsimArgs<T> pair_ssim_arguments(const Tensor& rgb, const Tensor& target) {
  PairSsimArgs<T> a = {};
  a.rgb = data<T>(rgb);
  a.target = data<T>(target);
  a.pixels = rgb.size(0);
  return a;
}

}  // namespace

Tensor pair_ssim(const Tensor& rgb, const Tensor& target) {
  check_pair_ssim(rgb, target);
  const Tensor r = dense(rgb), t = dense(target);
  Tensor loss = empty(r, {r.size(0) / 2}, r.scalar_type());
  with_scalar(r, [&](auto scalar) {
    using T = decltype(scalar);
    PairSsimArgs<T> a = pair_ssim_arguments<T>(r, t);
    a.loss = data<T>(loss);
    NERF_CALL(r, pair_ssim, a);
  });
  return loss;
}

std::tuple<Tensor, Tensor> pair_ssim_backward(const Tensor& grad_loss, const Tensor& rgb, const Tensor& target) {
  check_pair_ssim(rgb, target);
  check_argument("grad_loss", grad_loss, rgb, rgb.scalar_type(), {rgb.size(0) / 2});
  const Tensor g = dense(grad_loss), r = dense(rgb), t = dense(target);
  Tensor grad_rgb = empty(r, {r.size(0), 3}, r.scalar_type());
  Tensor grad_target = empty(r, {r.size(0), 3}, r.scalar_type());
  with_scalar(r, [&](auto scalar) {
    using T = decltype(scalar);
    PairSsimArgs<T> a = pair_ssim_arguments<T>(r, t);
    a.grad_loss = data<T>(g);
    a.grad_rgb = data<T>(grad_rgb);
    a.grad_target = data<T>(grad_target);
    NERF_CALL(r, pair_ssim_backward, a);
  });
  return {grad_rgb, grad_target};
}

NERF_OPERATION(pair_ssim, "(Tensor rgb, Tensor target) -> Tensor")
NERF_OPERATION(pair_ssim_backward,
               "(Tensor grad_loss, Tensor rgb, Tensor target) -> (Tensor grad_rgb, Tensor grad_target)")

}  // namespace nerf
