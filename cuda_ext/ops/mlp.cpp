// mlp and its backward.
#include "../portable/mlp.h"

#include "operation.h"

namespace nerf {
namespace {

struct MlpSizes {
  int64_t width, layers, outputs;
};

void check_mlp(const Tensor& inputs, const Tensor& params, const MlpSizes& s) {
  check_floating("inputs", inputs);
  check_argument("inputs", inputs, inputs, inputs.scalar_type(), {kAny, kAny});
  for (const auto& [name, count, low] : {std::tuple("width", s.width, int64_t(1)), std::tuple("layers", s.layers, int64_t(1)),
                                         std::tuple("outputs", s.outputs, int64_t(1))})
    if (count < low || count > kShortCells)
      reject(std::string(name) + " is " + std::to_string(count) + ", expected 1 to " + std::to_string(kShortCells));
  check_channels("inputs", inputs.size(1));
  product("params", {s.layers, s.width, s.width + inputs.size(1) + s.outputs + 2});
  product("the hidden values", {s.layers, inputs.size(0), s.width, 8});
  MlpArgs<float> a = {};
  a.inputs_count = inputs.size(1);
  a.width = s.width;
  a.layers = s.layers;
  a.outputs = s.outputs;
  check_argument("params", params, inputs, inputs.scalar_type(), {a.size()});
}

ScalarType kept_dtype(const Tensor& inputs, bool rounded) {
  return rounded ? ScalarType::BFloat16 : inputs.scalar_type();
}

template <class T>
MlpArgs<T> mlp_arguments(const Tensor& inputs, const Tensor& params, const MlpSizes& s, bool rounded) {
  MlpArgs<T> a = {};
  a.inputs = data<T>(inputs);
  a.params = data<T>(params);
  a.rows = inputs.size(0);
  a.inputs_count = inputs.size(1);
  a.width = s.width;
  a.layers = s.layers;
  a.outputs = s.outputs;
  a.rounded = rounded;
  return a;
}

// Memory that lasts as long as the tensor that comes back.
template <class T>
Tensor mlp_memory(const Tensor& like, MlpArgs<T>& a) {
  int64_t bytes = 0;
  a.scratch_bytes = &bytes;
  NERF_CALL(like, mlp_scratch, a);
  Tensor scratch = empty(like, {bytes}, ScalarType::Byte);
  a.scratch = scratch.data_ptr();
  return scratch;
}

}  // namespace

std::tuple<Tensor, Tensor> mlp(const Tensor& inputs, const Tensor& params, int64_t width, int64_t layers, int64_t outputs,
                               bool rounded, bool keep, const std::optional<Tensor>& needed) {
  const MlpSizes s = {width, layers, outputs};
  check_mlp(inputs, params, s);
  if (needed) check_argument("needed", *needed, inputs, inputs.scalar_type(), {inputs.size(0)});
  const Tensor x = dense(inputs), p = dense(params), n = needed ? dense(*needed) : x;
  Tensor out = empty(x, {x.size(0), outputs}, x.scalar_type());
  Tensor kept = empty(x, {layers, keep ? x.size(0) : 0, width}, kept_dtype(x, rounded));
  with_scalar(x, [&](auto scalar) {
    using T = decltype(scalar);
    MlpArgs<T> a = mlp_arguments<T>(x, p, s, rounded);
    a.out = data<T>(out);
    a.needed = needed ? data<T>(n) : nullptr;
    a.kept = keep ? kept.data_ptr() : nullptr;
    const Tensor scratch = mlp_memory(x, a);
    NERF_CALL(x, mlp, a);
  });
  return {out, kept};
}

std::tuple<Tensor, Tensor> mlp_backward(const Tensor& grad_out, const Tensor& inputs, const Tensor& params,
                                        const Tensor& kept, int64_t width, int64_t layers, int64_t outputs,
                                        bool rounded) {
  const MlpSizes s = {width, layers, outputs};
  check_mlp(inputs, params, s);
  const ScalarType dtype = inputs.scalar_type();
  check_argument("grad_out", grad_out, inputs, dtype, {inputs.size(0), outputs});
  check_argument("kept", kept, inputs, kept_dtype(inputs, rounded), {layers, inputs.size(0), width});
  const Tensor g = dense(grad_out), x = dense(inputs), p = dense(params), k = dense(kept);
  Tensor grad_inputs = empty(x, {x.size(0), x.size(1)}, dtype);
  Tensor grad_params = empty(x, {p.size(0)}, dtype);
  with_scalar(x, [&](auto scalar) {
    using T = decltype(scalar);
    MlpArgs<T> a = mlp_arguments<T>(x, p, s, rounded);
    a.grad_out = data<T>(g);
    a.kept = k.data_ptr();
    a.grad_inputs = data<T>(grad_inputs);
    a.grad_params = data<T>(grad_params);
    const Tensor scratch = mlp_memory(x, a);
    NERF_CALL(x, mlp_backward, a);
  });
  return {grad_inputs, grad_params};
}

NERF_OPERATION(mlp,
               "(Tensor inputs, Tensor params, int width, int layers, int outputs, bool rounded, bool keep, "
               "Tensor? needed=None) -> (Tensor out, Tensor kept)")
NERF_OPERATION(mlp_backward,
               "(Tensor grad_out, Tensor inputs, Tensor params, Tensor kept, int width, int layers, int outputs, "
               "bool rounded) -> (Tensor grad_inputs, Tensor grad_params)")

}  // namespace nerf
