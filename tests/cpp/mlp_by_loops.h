// A network of mlp for the kernels on a stand-in for a GPU: numbers to start from, and what it is by loops in double
// that round where mlp.h says. Behind emulated_gpu.h.
#pragma once

#include "cuda/mlp_plan.cuh"
#include "expect.h"

namespace nerf {

struct Network {
  int rows, inputs, width, layers, outputs, blocks, splits;
};

inline std::vector<float> drawn(int64_t count, double scale) {
  std::vector<float> made(count);
  for (float& x : made) x = float(number(-scale, scale));
  return made;
}

inline double factor(float x) { return widen(narrow<BFloat16>(x)); }

// Memory at a multiple of 16 bytes, of numbers that would show.
template <class T>
struct Memory {
  std::vector<uint4> bytes;
  explicit Memory(int64_t count)
      : bytes(size_t(count) * sizeof(T) / 16 + 1, uint4{~0u / 5, ~0u / 5, ~0u / 5, ~0u / 5}) {}
  T* get() { return reinterpret_cast<T*>(bytes.data()); }
};

inline cuda::MlpPlan plan_of(const Network& of) {
  cuda::MlpPlan p = {};
  p.rows = of.rows;
  p.inputs_count = p.grad_columns = of.inputs;
  p.width = of.width;
  p.layers = of.layers;
  p.outputs = of.outputs;
  p.blocks = of.blocks;
  p.splits = of.splits;
  return p;
}

inline void expect_all_near(const std::vector<float>& found, const std::vector<double>& wanted, const char* what) {
  for (size_t i = 0; i < wanted.size(); ++i) expect_near(found[i], wanted[i], 2e-3, what);
}

struct Gradients {
  std::vector<double> out, inputs, params;
};

// What the network is, from the hidden values that the kernels kept, which are checked on the way.
inline Gradients by_loops(const cuda::MlpPlan& p) {
  Gradients g = {std::vector<double>(p.rows * p.outputs), std::vector<double>(p.rows * p.inputs_count),
                 std::vector<double>(p.size())};
  std::vector<double> weights;
  for (int64_t i = 0; i < p.size(); ++i) weights.push_back(factor(p.params[i]));
  for (int64_t n = 0; n < p.rows; ++n) {
    std::vector<std::vector<double>> x(p.layers + 1);
    for (int k = 0; k < p.inputs_count; ++k) x[0].push_back(factor(p.inputs[n * p.inputs_count + k]));
    for (int l = 0; l <= p.layers; ++l) {
      const int64_t fan_in = p.fan_in(l);
      for (int64_t o = 0; o < p.fan_out(l); ++o) {
        double sum = p.params[p.bias_at(l) + o];
        const double *from = x[l].data(), *weight = &weights[p.weight_at(l) + o * fan_in];
        for (int64_t k = 0; k < fan_in; ++k) sum += from[k] * weight[k];
        if (l == p.layers) {
          g.out[n * p.outputs + o] = sum;
          continue;
        }
        const double kept = widen(p.kept[(l * p.rows + n) * p.width + o]);
        expect_near(kept, sum < 0 ? 0 : sum, 0.005 * (1 + std::abs(sum)), "hidden values");
        x[l + 1].push_back(kept);
      }
    }
    std::vector<double> unrounded(p.grad_out + n * p.outputs, p.grad_out + (n + 1) * p.outputs);
    for (int l = p.layers; l >= 0; --l) {
      const int64_t fan_in = p.fan_in(l);
      std::vector<double> before(fan_in);
      const double* from = x[l].data();
      double* to = before.data();
      for (int64_t o = 0; o < p.fan_out(l); ++o) {
        const double grad = factor(float(unrounded[o])), *weight = &weights[p.weight_at(l) + o * fan_in];
        double* of_weight = &g.params[p.weight_at(l) + o * fan_in];
        g.params[p.bias_at(l) + o] += l == p.layers ? unrounded[o] : grad;
        for (int64_t k = 0; k < fan_in; ++k) {
          of_weight[k] += grad * from[k];
          to[k] += grad * weight[k];
        }
      }
      for (int64_t k = 0; k < p.fan_in(l); ++k) {
        if (l == 0) g.inputs[n * p.inputs_count + k] = before[k];
        else if (x[l][k] == 0) before[k] = 0;
      }
      unrounded = before;
    }
  }
  return g;
}

}  // namespace nerf
