// The mathematics of cuda_ext/math where numbers are huge, infinite or none: no step beyond an array, no cast that does not
// fit, no endless loop. tests/cpp/test_math_cpp.py compiles it with the sanitizers. Prints what failed and returns 1, else 0.
#include <iterator>
#include <vector>

#include "adam.h"
#include "composite.h"
#include "distortion.h"
#include "expect.h"
#include "march.h"
#include "total_variation.h"
#include "trilinear.h"

namespace {

using namespace nerf;

const double kExtremes[] = {NAN,  INFINITY, -INFINITY, 1e300, -1e300, 1e38, -1e38,
                            1e19, -1e19,    1e-310,    -0.0,  0.0,    0.5,  3.0};

// Any coordinate gives rows inside the grid; a coordinate that is no number gives a weight that is none either.
template <class T>
void trilinear_extremes() {
  const int64_t sizes[][3] = {{1, 1, 1}, {1, 1, 2}, {3, 1, 4}, {int64_t(1) << 40, 2, 2}};
  for (const auto& vertices : sizes)
    for (double x : kExtremes)
      for (double y : kExtremes) {
        const T coord[3] = {T(clamp(x, -3e38, 3e38)), T(clamp(y, -3e38, 3e38)), x > 0 ? T(INFINITY) : -T(INFINITY)};
        const auto s = make_stencil(coord, vertices);
        T sum = 0;
        for (int k = 0; k < 8; ++k) {
          const int64_t row = s.corner_row(k);
          expect(row >= 0 && row < vertices[0] * vertices[1] * vertices[2], "extreme points keep to the grid");
          sum += s.corner_weight(k);
        }
        expect(std::isnan(sum) == (std::isnan(x) || std::isnan(y)), "what is no number stays none");
      }
}

// Any ray ends, has samples in order, and stays inside the grid's memory.
template <class T>
void march_extremes() {
  for (int trial = 0; trial < 20000; ++trial) {
    const int64_t cells[3] = {1 + trial % 2 * 4, 1 + trial % 3 * 3, 1};
    std::vector<uint8_t> filled(size_t(cells[0] * cells[1] * cells[2]), trial % 5 > 0);
    OccupancyWords occupancy = {nullptr, {cells[0], cells[1], cells[2]}};
    std::vector<uint64_t> words;
    for (int64_t x = 0; x < occupancy.size(0); ++x)
      for (int64_t y = 0; y < occupancy.size(1); ++y)
        for (int64_t z = 0; z < occupancy.size(2); ++z)
          words.push_back(pack_word(reinterpret_cast<const bool*>(filled.data()), cells, x, y, z));
    occupancy.words = words.data();
    const auto extreme = [] {
      const double x = number() < 0.5 ? kExtremes[generator() % std::size(kExtremes)] : number(-2, 6);
      return T(std::isinf(x) ? x : clamp(x, -3e38, 3e38));
    };
    T origin[3], direction[3];
    for (int axis = 0; axis < 3; ++axis) origin[axis] = extreme(), direction[axis] = extreme();
    const T jitter = number() < 0.5 ? T(0) : extreme(), near = extreme(), far = extreme();
    const auto ray = clip_ray(origin, direction, jitter, near, far, T(0.25), cells);
    T last = -T(INFINITY);
    const auto in_order = [&](T k) {
      expect(ray.t(k) >= last && ray.t(k + T(1)) >= ray.t(k), "samples come in order");
      last = ray.t(k);
      return true;
    };
    const int64_t limit = 100, count = walk_ray(ray, occupancy, T(0), T(1e6), limit, in_order);
    expect(count <= limit && (count == 0 || ray.t_max < T(INFINITY)), "no endless ray");
  }
}

// The sums over a ray's samples with numbers that overflow, and rays without any.
template <class T>
void ray_sums_extremes() {
  const std::vector<int64_t> offsets = {0, 0, 3, 3, 14};
  std::vector<T> density, starts(14, T(1)), ends, values, out(4), opacity(4), depth(4), weights(14), g(14), h(14),
      loss(4);
  for (double x : kExtremes) density.push_back(T(std::isinf(x) ? x : clamp(x, -3e38, 3e38)));
  for (int i = 0; i < 14; ++i)
    ends.push_back(i % 3 ? density[size_t(13 - i)] : T(1)), values.push_back(density[size_t(i)]);
  CompositeArgs<T> a = {};
  a.density = density.data(), a.values = values.data(), a.t_starts = starts.data(), a.t_ends = ends.data();
  a.ray_offsets = offsets.data(), a.num_rays = 4, a.num_samples = 14, a.channels = 1, a.min_transmittance = T(0.01);
  a.out_values = out.data(), a.opacity = opacity.data(), a.depth = depth.data(), a.weights = weights.data();
  a.grad_out_values = a.grad_opacity = a.grad_depth = ends.data(), a.grad_weights = density.data();
  a.grad_density = g.data(), a.grad_values = h.data();
  const DistortionArgs<T> b = {density.data(),          starts.data(), ends.data(), offsets.data(), 4,
                               int64_t(density.size()), loss.data(),   ends.data(), g.data()};
  for (int64_t r = 0; r < 4; ++r) {
    composite_ray(a, r), composite_ray_backward(a, r);
    distortion_ray(b, r), distortion_ray_backward(b, r);
  }
  expect(out[0] == 0 && opacity[2] == 0 && loss[0] == 0 && loss[2] == 0, "a ray without samples gives zeros");
}

template <class T>
void updates_extremes() {
  std::vector<T> grid;
  for (double x : kExtremes) grid.push_back(T(std::isinf(x) ? x : clamp(x, -3e38, 3e38)));
  std::vector<T> grad = grid, first = grid, second = grid, param = grid;
  const TotalVariationArgs<T> tv = {grid.data(), {}, {7, 1, 2}, 1, grad.data(), T(1e30), true, nullptr, 0};
  for (const float step : {0.0f, 1.0f, 1e30f, float(NAN)}) {
    const float lr = 1e30f;
    grad = grid;  // Adam clears it
    const AdamArgs<T> adam = {param.data(), first.data(), second.data(), grad.data(), 1, 14, nullptr, 14, &lr, 1,
                              &step,        0.9,          0.99,          1e-12};
    for (int64_t i = 0; i < 14; ++i) total_variation_gradient(tv, i), adam_update(adam, adam_scale(adam), i, i, T(lr));
  }
  expect(first[11] == 0, "zero gradients change nothing");
}

}  // namespace

int main() {
  trilinear_extremes<float>();
  trilinear_extremes<double>();
  march_extremes<float>();
  march_extremes<double>();
  ray_sums_extremes<float>();
  ray_sums_extremes<double>();
  updates_extremes<float>();
  updates_extremes<double>();
  return failures ? 1 : 0;
}
