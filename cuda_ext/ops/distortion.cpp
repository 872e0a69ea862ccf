// distortion_loss and its backward.
#include "../portable/distortion.h"

#include "operation.h"

namespace nerf {
namespace {

void check_intervals(const Tensor& weights, const Tensor& t_starts, const Tensor& t_ends, const Tensor& ray_offsets) {
  check_floating("weights", weights);
  const ScalarType dtype = weights.scalar_type();
  check_argument("weights", weights, weights, dtype, {kAny});
  check_argument("t_starts", t_starts, weights, dtype, {weights.size(0)});
  check_argument("t_ends", t_ends, weights, dtype, {weights.size(0)});
  check_argument("ray_offsets", ray_offsets, weights, ScalarType::Long, {kAny});
  if (ray_offsets.size(0) == 0) reject("ray_offsets has shape [0], expected [R+1]");
}

template <class T>
DistortionArgs<T> distortion_arguments(const Tensor& weights, const Tensor& t_starts, const Tensor& t_ends,
                                       const Tensor& ray_offsets) {
  DistortionArgs<T> a = {};
  a.weights = data<T>(weights);
  a.t_starts = data<T>(t_starts);
  a.t_ends = data<T>(t_ends);
  a.ray_offsets = data<int64_t>(ray_offsets);
  a.num_rays = ray_offsets.size(0) - 1;
  a.num_samples = weights.size(0);
  return a;
}

}  // namespace

Tensor distortion_loss(const Tensor& weights, const Tensor& t_starts, const Tensor& t_ends, const Tensor& ray_offsets) {
  check_intervals(weights, t_starts, t_ends, ray_offsets);
  const Tensor w = dense(weights), starts = dense(t_starts), ends = dense(t_ends), offsets = dense(ray_offsets);
  check_offsets(offsets, w.size(0));
  Tensor loss = empty(w, {offsets.size(0) - 1}, w.scalar_type());
  with_scalar(w, [&](auto scalar) {
    using T = decltype(scalar);
    DistortionArgs<T> a = distortion_arguments<T>(w, starts, ends, offsets);
    a.loss = data<T>(loss);
    NERF_CALL(w, distortion, a);
  });
  return loss;
}

Tensor distortion_loss_backward(const Tensor& grad_loss, const Tensor& weights, const Tensor& t_starts,
                                const Tensor& t_ends, const Tensor& ray_offsets) {
  check_intervals(weights, t_starts, t_ends, ray_offsets);
  check_argument("grad_loss", grad_loss, weights, weights.scalar_type(), {ray_offsets.size(0) - 1});
  const Tensor w = dense(weights), starts = dense(t_starts), ends = dense(t_ends), offsets = dense(ray_offsets),
               g = dense(grad_loss);
  check_offsets(offsets, w.size(0));
  Tensor grad_weights = zeros(w, {w.size(0)}, w.scalar_type());  // zero for samples that belong to no ray
  with_scalar(w, [&](auto scalar) {
    using T = decltype(scalar);
    DistortionArgs<T> a = distortion_arguments<T>(w, starts, ends, offsets);
    a.grad_loss = data<T>(g);
    a.grad_weights = data<T>(grad_weights);
    NERF_CALL(w, distortion_backward, a);
  });
  return grad_weights;
}

NERF_OPERATION(distortion_loss, "(Tensor weights, Tensor t_starts, Tensor t_ends, Tensor ray_offsets) -> Tensor")
NERF_OPERATION(distortion_loss_backward,
               "(Tensor grad_loss, Tensor weights, Tensor t_starts, Tensor t_ends, Tensor ray_offsets) -> Tensor")

}  // namespace nerf
