// A multilayer perceptron with L hidden layers of one width W, one row at a time:
//
//   x_0 = inputs,   x_{l+1} = relu(W_l x_l + b_l)  for l < L,   out = W_L x_L + b_L
//
// params holds W_0 [W,I], b_0 [W], W_1 [W,W], b_1 [W], ..., W_L [O,W], b_L [O], one behind the other.
//
// rounded: every product is one of two bfloat16 numbers, as tensor cores make them. What is rounded, to the nearest: weights and
// inputs, hidden values x_l, and on the way back the gradients of W_l x_l + b_l, that of out but for b_L's own. Sums, biases
// and all results are not.
//
// needed: out is 0 in rows where it is. These are not computed, unless hidden values are to be kept.
#pragma once

#include "bfloat16.h"

namespace nerf {

template <class T>
struct MlpArgs {
  const T *inputs, *params;  // [N,I], flat
  const T* needed;           // [N]; null: all rows are
  int64_t rows, inputs_count, width, layers, outputs;
  bool rounded;
  T* out;                        // [N,O]  forward
  void* kept;                    // [L,N,W] hidden values, bfloat16 if rounded, else T; null: nobody asks for them
  const T* grad_out;             // [N,O]  backward; null: forward
  T *grad_inputs, *grad_params;  // [N,I], flat
  void* scratch;                 // as many bytes as mlp_scratch says
  int64_t* scratch_bytes;

  HOST_DEVICE bool is_needed(int64_t n) const { return !needed || needed[n] != T(0); }
  HOST_DEVICE int64_t fan_in(int64_t layer) const { return layer == 0 ? inputs_count : width; }
  HOST_DEVICE int64_t fan_out(int64_t layer) const { return layer == layers ? outputs : width; }
  HOST_DEVICE int64_t weight_at(int64_t layer) const {
    return layer == 0 ? 0 : (inputs_count + 1) * width + (layer - 1) * (width + 1) * width;
  }
  HOST_DEVICE int64_t bias_at(int64_t layer) const { return weight_at(layer) + fan_in(layer) * fan_out(layer); }
  HOST_DEVICE int64_t size() const { return bias_at(layers) + outputs; }

  // A number as it enters a product.
  HOST_DEVICE T factor(T x) const { return rounded ? T(widen(narrow<BFloat16>(float(x)))) : x; }
  HOST_DEVICE T kept_value(int64_t i) const {
    return rounded ? T(widen(static_cast<const BFloat16*>(kept)[i])) : static_cast<const T*>(kept)[i];
  }
  HOST_DEVICE void keep(int64_t i, T x) const {
    if (rounded) static_cast<BFloat16*>(kept)[i] = narrow<BFloat16>(float(x));
    else static_cast<T*>(kept)[i] = x;
  }
  // Number k of what enters a layer in row n, backward.
  HOST_DEVICE T entering(int64_t layer, int64_t n, int64_t k) const {
    return layer == 0 ? factor(inputs[n * inputs_count + k]) : kept_value(((layer - 1) * rows + n) * width + k);
  }
  // Gradient of number o of a layer's result before ReLU, once mlp_row_gradient has made it.
  HOST_DEVICE T gradient(int64_t layer, int64_t n, int64_t o) const {
    return layer == layers ? grad_out[n * outputs + o]
                           : static_cast<const T*>(scratch)[(layer * rows + n) * width + o];
  }
};

// out of row n; scratch [2,N,W]: hidden values of the layer before and of this one.
template <class T>
HOST_DEVICE void mlp_row(const MlpArgs<T>& a, int64_t n) {
  T* hidden[2] = {static_cast<T*>(a.scratch) + n * a.width, static_cast<T*>(a.scratch) + (a.rows + n) * a.width};
  const T* x = a.inputs + n * a.inputs_count;
  const bool is_needed = a.is_needed(n);
  for (int64_t layer = is_needed || a.kept ? 0 : a.layers; layer <= a.layers; ++layer) {
    const int64_t count = a.fan_in(layer);
    const T *weights = a.params + a.weight_at(layer), *bias = a.params + a.bias_at(layer);
    T* to = layer == a.layers ? a.out + n * a.outputs : hidden[layer % 2];
    for (int64_t o = 0; o < a.fan_out(layer); ++o) {
      if (layer == a.layers && !is_needed) {
        to[o] = T(0);
        continue;
      }
      T sum = bias[o];
      for (int64_t k = 0; k < count; ++k) sum += a.factor(x[k]) * a.factor(weights[o * count + k]);
      if (layer < a.layers) {
        sum = sum < T(0) ? T(0) : sum;  // NaN stays NaN
        if (a.kept) a.keep((layer * a.rows + n) * a.width + o, sum);
      }
      to[o] = sum;
    }
    x = to;
  }
}

// Gradients of the hidden values of row n before ReLU, into scratch [L,N,W], and of the inputs.
template <class T>
HOST_DEVICE void mlp_row_gradient(const MlpArgs<T>& a, int64_t n) {
  for (int64_t layer = a.layers; layer >= 0; --layer) {
    const int64_t count = a.fan_in(layer);
    const T* weights = a.params + a.weight_at(layer);
    for (int64_t k = 0; k < count; ++k) {
      T sum = T(0);
      for (int64_t o = 0; o < a.fan_out(layer); ++o)
        sum += a.factor(a.gradient(layer, n, o)) * a.factor(weights[o * count + k]);
      if (layer == 0) a.grad_inputs[n * count + k] = sum;
      else
        static_cast<T*>(a.scratch)[((layer - 1) * a.rows + n) * a.width + k] =
            a.entering(layer, n, k) == T(0) ? T(0) : sum;
    }
  }
}

// Gradient of number i of params: a sum over all rows.
template <class T>
HOST_DEVICE T mlp_param_gradient(const MlpArgs<T>& a, int64_t i) {
  int64_t layer = a.layers;
  while (i < a.weight_at(layer)) --layer;
  const int64_t count = a.fan_in(layer), place = i - a.weight_at(layer);
  const bool is_bias = i >= a.bias_at(layer);
  const int64_t o = is_bias ? i - a.bias_at(layer) : place / count, k = is_bias ? 0 : place % count;
  T sum = T(0);
  for (int64_t n = 0; n < a.rows; ++n)
    if (is_bias) sum += layer == a.layers ? a.gradient(layer, n, o) : a.factor(a.gradient(layer, n, o));
    else sum += a.factor(a.gradient(layer, n, o)) * a.entering(layer, n, k);
  return sum;
}

}  // namespace nerf
