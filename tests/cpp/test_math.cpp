// The mathematics of cuda_ext/math under g++ alone: no torch, no CUDA. tests/cpp/test_math_cpp.py compiles it with
// the sanitizers for addresses and undefined behaviour. Prints what failed and returns 1, or nothing and 0.
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "adam.h"
#include "bfloat16.h"
#include "cells.h"
#include "composite.h"
#include "distortion.h"
#include "divider.h"
#include "expect.h"
#include "index_add.h"
#include "march.h"
#include "sample_images.h"
#include "total_variation.h"
#include "trilinear.h"

namespace {

using namespace nerf;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void trilinear_weights() {
  const int64_t sizes[][3] = {{2, 3, 4}, {1, 3, 2}, {1, 1, 1}, {5, 1, 2}};
  for (const auto& vertices : sizes)
    for (int trial = 0; trial < 200; ++trial) {
      double coord[3];
      // Every other point lies on the lattice of vertices, the last ones among them, or outside of it.
      for (double& x : coord) x = trial % 2 ? number(-1, 6) : std::floor(number(-1, 6));
      const auto s = make_stencil(coord, vertices);
      double sum = 0, slopes[3] = {0, 0, 0}, place[3] = {0, 0, 0};
      for (int k = 0; k < 8; ++k) {
        const int64_t row = s.corner_row(k);
        expect(row >= 0 && row < vertices[0] * vertices[1] * vertices[2], "every corner lies in the grid");
        expect(s.corner_weight(k) >= 0, "weights are not negative");
        sum += s.corner_weight(k);
        const int64_t x = row / (vertices[1] * vertices[2]), y = row / vertices[2] % vertices[1];
        const int64_t corner[3] = {x, y, row % vertices[2]};
        for (int axis = 0; axis < 3; ++axis) {
          slopes[axis] += s.corner_weight_slope(k, axis);
          place[axis] += s.corner_weight(k) * double(corner[axis]);
        }
      }
      expect_near(sum, 1, 1e-15, "weights are a partition of unity");
      for (int axis = 0; axis < 3; ++axis) {
        expect_near(slopes[axis], 0, 1e-15, "slopes of a partition of unity cancel");
        expect_near(place[axis], clamp(coord[axis], 0.0, double(vertices[axis] - 1)), 1e-14,
                    "the corners average to the clamped point");
      }
    }
}

void trilinear_slope() {
  const int64_t vertices[3] = {3, 4, 5}, channels = 2;
  const auto grid = numbers(3 * 4 * 5 * 2), grad_out = numbers(2, -1);
  const auto value = [&](const double* coord) {
    const auto s = make_stencil(coord, vertices);
    double sum = 0;
    for (int k = 0; k < 8; ++k)
      for (int64_t c = 0; c < channels; ++c)
        sum += s.corner_weight(k) * grid[s.corner_row(k) * channels + c] * grad_out[c];
    return sum;
  };
  for (int trial = 0; trial < 100; ++trial) {
    double coord[3], gradient[3];
    for (double& x : coord) x = std::floor(number(-1, 5)) + number(0.1, 0.9);  // away from the bends
    coordinate_gradient(make_stencil(coord, vertices), DenseRows{}, grid.data(), grad_out.data(), channels, gradient);
    for (int axis = 0; axis < 3; ++axis) {
      double low[3] = {coord[0], coord[1], coord[2]}, high[3] = {coord[0], coord[1], coord[2]};
      low[axis] -= 1e-5, high[axis] += 1e-5;
      expect_near(gradient[axis], (value(high) - value(low)) / 2e-5, 1e-9, "slope against finite differences");
    }
  }
}

// Five rays with random samples, and where their outputs go.
struct Batch {
  std::vector<int64_t> offsets = {0, 0, 1, 6, 46, 46};
  std::vector<double> density = numbers(46, 0.04, 0.4), values = numbers(46 * 3, -1), starts, ends;
  std::vector<double> out = numbers(5 * 3), opacity = numbers(5), depth = numbers(5), weights = numbers(46);
  CompositeArgs<double> args = {};

  explicit Batch(double min_transmittance) {
    for (int i = 0; i < 46; ++i) starts.push_back(i), ends.push_back(i + number(0.2, 0.9));
    args.density = density.data(), args.values = values.data(), args.ray_offsets = offsets.data();
    args.t_starts = starts.data(), args.t_ends = ends.data(), args.weights = weights.data();
    args.num_rays = 5, args.num_samples = 46, args.channels = 3, args.min_transmittance = min_transmittance;
    args.out_values = out.data(), args.opacity = opacity.data(), args.depth = depth.data();
  }

  void forward() {
    for (int64_t r = 0; r < args.num_rays; ++r) composite_ray(args, r);
  }
};

void opacities() {
  for (double exponent = -120; exponent < 7; exponent += 0.0007) {
    const float x = float(std::exp2(exponent));
    const double expected = -std::expm1(-double(x));
    expect(std::abs(opacity_of(x) - expected) <= 1.2e-7 * expected, "an opacity is right to the last bit but one");
  }
  const float infinite = std::numeric_limits<float>::infinity();
  expect(opacity_of(0.0f) == 0 && opacity_of(1e30f) == 1 && opacity_of(infinite) == 1,
         "nothing, a wall and a thicker one");
  expect(std::isnan(opacity_of(std::nanf(""))), "NaN stays NaN");
}

void dots() {
  for (size_t count = 0; count < 40; ++count) {
    const std::vector<double> a = numbers(count, -1), b = numbers(count, -1);
    expect_near(nerf::dot(a.data(), b.data(), int64_t(count)), dot(a, b), 1e-14, "a dot product in eight sums");
  }
}

void composite_sums() {
  Batch batch(0);
  batch.forward();
  for (int64_t r = 0; r < batch.args.num_rays; ++r) {
    double optical_depth = 0, sum = 0, depth = 0;
    for (int64_t i = batch.offsets[r]; i < batch.offsets[r + 1]; ++i) {
      optical_depth += batch.density[i] * (batch.ends[i] - batch.starts[i]);
      sum += batch.weights[i];
      depth += batch.weights[i] * 0.5 * (batch.starts[i] + batch.ends[i]);
    }
    expect_near(sum + std::exp(-optical_depth), 1, 1e-14, "weights and the light behind them sum to 1");
    expect_near(batch.opacity[r], sum, 1e-15, "opacity is the sum of the weights");
    expect_near(batch.depth[r], depth, 1e-12, "depth is the weighted midpoint");
  }
}

void composite_gradient(double min_transmittance) {
  Batch batch(min_transmittance);
  const auto grad_out = numbers(batch.out.size(), -1), grad_opacity = numbers(batch.opacity.size(), -1),
             grad_depth = numbers(batch.depth.size(), -1), grad_weights = numbers(batch.weights.size(), -1);
  const auto loss = [&] {
    batch.forward();
    return dot(batch.out, grad_out) + dot(batch.opacity, grad_opacity) + dot(batch.depth, grad_depth) +
           dot(batch.weights, grad_weights);
  };
  loss();
  std::vector<double> grad_density(batch.density.size(), 7), grad_values(batch.values.size(), 7);
  auto& a = batch.args;
  a.grad_out_values = grad_out.data(), a.grad_opacity = grad_opacity.data(), a.grad_depth = grad_depth.data();
  a.grad_weights = grad_weights.data(), a.grad_density = grad_density.data(), a.grad_values = grad_values.data();
  for (int64_t r = 0; r < a.num_rays; ++r) composite_ray_backward(a, r);
  const auto slope = [&](double& x) {
    const double middle = x, step = 1e-6;
    const double high = (x = middle + step, loss()), low = (x = middle - step, loss());
    x = middle;
    return (high - low) / (2 * step);
  };
  for (size_t i = 0; i < grad_density.size(); ++i)
    expect_near(grad_density[i], slope(batch.density[i]), 2e-7, "gradient of density");
  for (size_t i = 0; i < grad_values.size(); ++i)
    expect_near(grad_values[i], slope(batch.values[i]), 2e-7, "gradient of values");
}

template <class T>
void march_equals_brute_force() {
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t cells[3] = {1 + int64_t(number(0, 11)), 1 + int64_t(number(0, 6)), 1 + int64_t(number(0, 14))};
    std::vector<uint8_t> filled(size_t(cells[0] * cells[1] * cells[2]));
    for (auto& cell : filled) cell = number() < (trial % 3 ? 0.02 : 0.5);
    const bool* occupied = reinterpret_cast<const bool*>(filled.data());
    OccupancyWords occupancy = {nullptr, {cells[0], cells[1], cells[2]}};
    std::vector<uint64_t> words;
    for (int64_t x = 0; x < occupancy.size(0); ++x)
      for (int64_t y = 0; y < occupancy.size(1); ++y)
        for (int64_t z = 0; z < occupancy.size(2); ++z) words.push_back(pack_word(occupied, cells, x, y, z));
    occupancy.words = words.data();
    T origin[3], direction[3];
    for (int axis = 0; axis < 3; ++axis) {
      origin[axis] = T(number(-5, 15)), direction[axis] = T(number(0, double(cells[axis]))) - origin[axis];
      if (number() < 0.1) direction[axis] = T(0);
    }
    const T jitter = T(number(-0.5, 0.5)), near = T(number(0, 0.3)), far = T(number(0.5, 3));
    const auto ray = clip_ray(origin, direction, jitter, near, far, T(number(0.005, 0.2)), cells);
    std::vector<std::pair<T, T>> expected, found;
    for (T k = 0; ray.t(k + T(0.5)) < ray.t_max; k += T(1)) {
      int64_t cell[3];
      for (int axis = 0; axis < 3; ++axis) {
        const T position = std::floor(origin[axis] + ray.t(k + T(0.5)) * direction[axis]);
        cell[axis] = clamp<int64_t>(int64_t(position), 0, cells[axis] - 1);
      }
      if (filled[size_t((cell[0] * cells[1] + cell[1]) * cells[2] + cell[2])])
        expected.emplace_back(ray.t(k), ray.t(k + T(1)));
    }
    const auto keep = [&](T k) {
      found.emplace_back(ray.t(k), ray.t(k + T(1)));
      return true;
    };
    const int64_t count = walk_ray(ray, occupancy, T(0), T(INFINITY), INT64_MAX, keep);
    expect(found == expected && count == int64_t(expected.size()), "walking with strides finds every sample");
    found.clear();
    const int64_t half = walk_ray(ray, occupancy, T(0), T(INFINITY), count / 2, keep);
    expect(half == count / 2 && half == int64_t(found.size()), "the limit ends the walk");
    int64_t asked = 0;
    walk_ray(ray, occupancy, T(0), T(INFINITY), INT64_MAX, [&](T) { return ++asked < 2; });
    expect(asked == min2<int64_t>(count, 2), "whoever takes the samples ends the walk");
    found.clear();
    const T length = std::floor(ray.length() / T(32)) + T(1);  // as the lanes of a warp share a ray
    for (int lane = 0; lane < 32; ++lane)
      walk_ray(ray, occupancy, T(lane) * length, lane == 31 ? T(INFINITY) : T(lane + 1) * length, INT64_MAX, keep);
    expect(found == expected, "pieces of the lattice make the same samples");
  }
}

void distortion_of_pairs() {
  const std::vector<int64_t> offsets = {0, 0, 1, 9};
  auto weights = numbers(9), starts = numbers(9, 0, 0.5), ends = numbers(9, 0.5, 1);
  for (int i = 0; i < 9; ++i) starts[i] += i, ends[i] += i;
  const auto definition = [&](int64_t r) {
    double sum = 0;
    for (int64_t i = offsets[r]; i < offsets[r + 1]; ++i) {
      sum += weights[i] * weights[i] * (ends[i] - starts[i]) / 3;
      for (int64_t j = offsets[r]; j < offsets[r + 1]; ++j)
        sum += weights[i] * weights[j] * std::abs(starts[i] + ends[i] - starts[j] - ends[j]) / 2;
    }
    return sum;
  };
  std::vector<double> loss(3, 7), grad(9, 7);
  const std::vector<double> grad_loss = {3, 0.5, -2};
  const DistortionArgs<double> args = {weights.data(),          starts.data(), ends.data(),      offsets.data(), 3,
                                       int64_t(weights.size()), loss.data(),   grad_loss.data(), grad.data()};
  for (int64_t r = 0; r < 3; ++r) distortion_ray(args, r), distortion_ray_backward(args, r);
  for (int64_t r = 0; r < 3; ++r) expect_near(loss[r], definition(r), 1e-13, "distortion of all pairs");
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t r = i < 1 ? 1 : 2;
    const double middle = weights[i];
    const double high = (weights[i] = middle + 1e-4, definition(r)), low = (weights[i] = middle - 1e-4, definition(r));
    weights[i] = middle;
    expect_near(grad[i], grad_loss[r] * (high - low) / 2e-4, 1e-9, "gradient of distortion");
  }
}

void total_variation_sums_to_zero() {
  const auto grid = numbers(4 * 1 * 3 * 2, -2, 2);
  std::vector<double> grad(grid.size(), 0);
  const TotalVariationArgs<double> args = {grid.data(), {}, {4, 1, 3}, 2, grad.data(), 0.5, false, nullptr, 0};
  for (int64_t i = 0; i < int64_t(grid.size()); ++i) total_variation_gradient(args, i);
  double sum = 0, largest = 0;
  for (double g : grad) sum += g, largest = max2(largest, std::abs(g));
  expect_near(sum, 0, 1e-14, "what one neighbor gains the other loses");
  expect(largest > 0.5 && largest <= 0.5 * 4, "each of up to 4 neighbors pulls with at most the weight");
}

void adam_first_step() {
  double param[2] = {1, 2}, first[2] = {0, 3}, second[2] = {0, 4};
  double grad[2] = {-3, 0};
  const float lr = 0.5f, step = 1;
  const AdamArgs<double> args = {param, first, second, grad, 1, 2, nullptr, 2, &lr, 1, &step, 0.9, 0.99, 1e-12};
  for (int64_t i = 0; i < 2; ++i) adam_update(args, adam_scale(args), i, i, double(lr));
  expect_near(param[0], 1.5, 1e-9, "the first step is as long as the learning rate");
  expect(param[1] == 2 && first[1] == 3 && second[1] == 4, "without a gradient nothing changes");
  expect(grad[0] == 0, "the gradient is cleared");
}

void pixels() {
  const std::vector<uint8_t> images = {0, 255, 51, 102};
  const std::vector<int64_t> indices = {1, 0, 2, -1};
  std::vector<float> out(8, -1);
  const SampleImagesArgs<float> args = {images.data(), 2, 2, indices.data(), 4, out.data()};
  for (int64_t r = 0; r < 4; ++r) sample_pixel(args, r);
  expect(out[0] == 0.2f && out[1] == 0.4f && out[2] == 0 && out[3] == 1, "bytes become shares of 255");
  for (size_t i = 4; i < 8; ++i) expect(std::isnan(out[i]), "no pixel there: not a number");
}

void cell_point_gradient() {
  for (int trial = 0; trial < 50; ++trial) {
    const auto point = numbers(3, -1.5, 1.5), dots = numbers(8, -1);
    const auto value = [&](const std::vector<double>& x) {
      const auto w = cell_weights(x.data());
      double sum = 0;
      for (int k = 0; k < 8; ++k) sum += w.corner_weight(k) * dots[k];
      return sum;
    };
    for (int axis = 0; axis < 3; ++axis) {
      auto low = point, high = point;
      low[axis] -= 0.25, high[axis] += 0.25;  // the value is linear along an axis
      expect_near(point_gradient(cell_weights(point.data()), dots.data(), axis), 2 * (value(high) - value(low)), 1e-13,
                  "gradient of a point in its cell");
    }
  }
}

void division_by_multiplication() {
  const uint32_t largest = INT32_MAX;
  std::vector<uint32_t> divisors = {1, 2, 3, 7, 10, 255, 256, 257, 65537, 1u << 30, (1u << 30) + 1};
  divisors.insert(divisors.end(), {largest - 1, largest});
  for (int i = 0; i < 200; ++i) divisors.push_back(1 + uint32_t(generator()) % largest);
  for (const uint32_t by : divisors) {
    const Divider<uint32_t> divider(by);
    const auto check = [&](uint32_t n) { expect(divider.divide(n) == n / by, "a quotient of 31 bits"); };
    for (int i = 0; i < 200; ++i) check(uint32_t(generator()) % largest);
    for (uint64_t multiple = by; multiple <= largest; multiple += by * (1 + largest / by / 50)) {
      check(uint32_t(multiple));
      check(uint32_t(multiple - 1));
    }
    check(0), check(largest);
  }
}

void slices() {
  SliceDims dims;  // [2,3,4] in rows of 10 in dst, without gaps in src
  expect(dims.append(4, 1, 1) && dims.append(1, 99, 77) && dims.append(3, 10, 4) && dims.append(2, 30, 12), "fits");
  expect(dims.count == 2 && dims.size[1] == 6 && dims.num_elements() == 24, "what lies together is one dimension");
  const SliceWalk<uint32_t> walk(dims), packs(dims, 2);
  const auto check = [](const SliceWalk<uint32_t>& w, uint32_t element, uint32_t dst, uint32_t src) {
    uint32_t d, s;
    w.locate(element, d, s);
    expect(d == dst && s == src, "an element of a slice in both memories");
  };
  for (uint32_t e = 0; e < 24; ++e) check(walk, e, e / 4 * 10 + e % 4, e);
  for (uint32_t p = 0; p < 12; ++p) check(packs, p, p / 2 * 10 + p % 2 * 2, 2 * p);
  check(SliceWalk<uint32_t>(SliceDims()), 0, 0, 0);
  SliceDims many;
  for (int d = 0; d < kMaxSliceDims; ++d) expect(many.append(2, 10 << (2 * d), 1), "as many as there is room for");
  expect(!many.append(2, 1, 7), "one too many");
}

void bfloat16_rounds_to_even() {
  const std::pair<float, float> rounded[] = {
      {1, 1},         {1 + 1 / 256.f, 1}, {1 + 3 / 256.f, 1 + 4 / 256.f}, {1 + 1.01f / 256, 1 + 2 / 256.f},
      {-3.5f, -3.5f}, {3.4e38f, INFINITY}};
  for (const auto& [x, expected] : rounded) expect(widen(narrow<BFloat16>(x)) == expected, "the nearest bfloat16");
  expect(std::isnan(widen(narrow<BFloat16>(NAN))), "not a number stays one");
  expect(widen(narrow<BFloat16>(INFINITY)) == INFINITY, "infinity stays so");
}

}  // namespace

int main() {
  trilinear_weights();
  trilinear_slope();
  opacities();
  dots();
  composite_sums();
  composite_gradient(0);
  composite_gradient(0.05);
  march_equals_brute_force<float>();
  march_equals_brute_force<double>();
  distortion_of_pairs();
  total_variation_sums_to_zero();
  adam_first_step();
  pixels();
  cell_point_gradient();
  division_by_multiplication();
  slices();
  bfloat16_rounds_to_even();
  return failures ? 1 : 0;
}
