// The loops of cuda_ext/cpu and cuda_ext/portable without PyTorch: every array has its exact size on the heap, so that a step beyond it is seen.
// tests/cpp/test_math_cpp.py compiles it with the sanitizers. Prints what failed and returns 1, or nothing and 0.
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "expect.h"
#include "portable/adam.h"
#include "portable/camera_rays.h"
#include "portable/composite.h"
#include "portable/contract_basis.h"
#include "portable/distortion.h"
#include "portable/march.h"
#include "portable/sample_images.h"
#include "portable/total_variation.h"
#include "portable/trilinear.h"
#include "portable/trilinear_order.h"

namespace {

using namespace nerf;

template <class T>
std::vector<T> numbers(int64_t count, double low = 0, double high = 1) {
  std::vector<T> all(static_cast<size_t>(count));
  for (T& x : all) x = T(std::uniform_real_distribution<double>(low, high)(generator));
  return all;
}

// [X,Y,Z,C] values at [N,3] points, some outside and some not a number; the adjoint of the one loop is the other.
template <class T>
void trilinear_is_adjoint(int64_t x, int64_t y, int64_t z, int64_t channels, int64_t points, bool lost) {
  TrilinearArgs<T> a = {};
  auto grid = numbers<T>(x * y * z * channels, -1), coords = numbers<T>(3 * points, -2, 7);
  if (lost)
    for (size_t i = 0; i < coords.size(); i += 5) coords[i] = i % 2 ? T(NAN) : T(3e38);
  std::vector<T> out(size_t(points * channels), T(7)), grad_grid(grid.size()), grad_coords(coords.size(), T(7));
  const auto grad_out = numbers<T>(points * channels, -1);
  a.grid = grid.data(), a.coords = coords.data(), a.out = out.data(), a.grad_out = grad_out.data();
  a.vertices[0] = x, a.vertices[1] = y, a.vertices[2] = z, a.channels = channels, a.num_points = points;
  a.grad_grid = grad_grid.data(), a.grad_coords = grad_coords.data();
  cpu::trilinear(a, {});
  cpu::trilinear_backward(a, {});
  double forward = 0, backward = 0;
  for (size_t i = 0; i < out.size(); ++i) forward += double(out[i]) * double(grad_out[i]);
  for (size_t i = 0; i < grid.size(); ++i) backward += double(grid[i]) * double(grad_grid[i]);
  expect(lost || std::abs(forward - backward) < 1e-3, "the backward loop is the adjoint of the forward one");
}

// The adjoint in one order is the adjoint. crowd: that share of the points lies in one cell, far beyond a cut; some weigh
// nothing.
template <class T, class Cell>
void order_keeps_the_sum(int64_t x, int64_t y, int64_t z, int64_t channels, int64_t points, double crowd) {
  auto coords = numbers<T>(3 * points, -2, 7), grad_out = numbers<T>(points * channels, -1);
  for (size_t i = 0; i < size_t(3 * points * crowd); ++i) coords[i] = T(0.25) + coords[i] / 100;
  for (size_t i = 0; i < grad_out.size(); ++i)
    if (i / size_t(channels) % 7 == 0) grad_out[i] = T(0);
  std::vector<T> expected(size_t(x * y * z * channels), T(1)), found = expected;
  TrilinearArgs<T> a = {};
  a.vertices[0] = x, a.vertices[1] = y, a.vertices[2] = z, a.channels = channels, a.num_points = points;
  a.coords = coords.data(), a.grad_out = grad_out.data(), a.grad_grid = expected.data();
  cpu::trilinear_backward(a, {});
  TrilinearOrderArgs<T> o = {};
  o.points = a, o.points.grad_grid = found.data(), o.narrow = sizeof(Cell) == 4;
  std::vector<Cell> cells(size_t(points), Cell(-1)), sorted;
  o.cells = cells.data();
  cpu::trilinear_cells(o, {});
  std::vector<int64_t> order(static_cast<size_t>(points)), bounds(kParities + 1, -1);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto i, auto j) { return cells[size_t(i)] < cells[size_t(j)]; });
  for (const int64_t n : order) sorted.push_back(cells[size_t(n)]);
  std::vector<T> partial(size_t(o.cuts() * 8 * channels), T(NAN));
  o.cells = sorted.data(), o.order = order.data(), o.bounds = bounds.data(), o.partial = partial.data();
  cpu::trilinear_in_order(o, {});
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(double(found[i]) - double(expected[i])));
  expect(worst < (sizeof(T) == 4 ? 1e-3 : 1e-11), "one order has the sums of any other");
  expect(bounds[0] == 0 && std::is_sorted(bounds.begin(), bounds.end()) && bounds[kParities] <= points,
         "the points of a color lie between two bounds");
}

template <class T>
void march_counts_what_it_fills(int64_t rays, int64_t capacity, double far) {
  const int64_t cells[3] = {5, 1, 9};
  const auto filled = std::make_unique<bool[]>(45);
  for (int i = 0; i < 45; ++i) filled[size_t(i)] = generator() % 2;
  auto origins = numbers<T>(3 * rays, -3, 6), directions = numbers<T>(3 * rays, -1), near = numbers<T>(rays),
       jitter = numbers<T>(rays, -0.5, 0.5), ends = std::vector<T>(size_t(rays), T(far));
  if (rays > 2) origins[4] = T(NAN), directions[6] = directions[7] = directions[8] = T(0), origins[1] = T(1e30);
  MarchArgs<T> a = {};
  std::vector<uint64_t> words(2 * 1 * 3);
  std::vector<int64_t> offsets(size_t(rays + 1), -1);
  int64_t overflow = 0;
  a.origins = origins.data(), a.directions = directions.data(), a.jitter = jitter.data(), a.near = near.data();
  a.far = ends.data(), a.step_size = T(0.2), a.occupied = filled.get(), a.words = words.data(), a.num_rays = rays;
  for (int axis = 0; axis < 3; ++axis) a.cells[axis] = cells[axis];
  a.ray_offsets = offsets.data(), a.capacity = capacity, a.overflow = &overflow;
  expect(a.occupancy().count() == int64_t(words.size()), "as many words as the occupancy says");
  cpu::march_count(a, {});
  const int64_t samples = offsets.back();
  expect(samples >= 0 && (capacity == 0 || samples <= capacity), "the samples fit the capacity");
  std::vector<int64_t> indices(size_t(samples), -1);
  std::vector<T> t_starts(size_t(samples), T(-1)), t_ends(size_t(samples), T(-1));
  a.ray_indices = indices.data(), a.t_starts = t_starts.data(), a.t_ends = t_ends.data();
  cpu::march_fill(a, {});
  for (int64_t r = 0; r < rays; ++r)
    for (int64_t i = offsets[size_t(r)]; i < offsets[size_t(r + 1)]; ++i)
      expect(indices[size_t(i)] == r && t_starts[size_t(i)] < t_ends[size_t(i)], "every counted sample is filled");
}

template <class T>
void sums_over_rays(const std::vector<int64_t>& offsets, int64_t channels) {
  const int64_t rays = int64_t(offsets.size()) - 1, samples = offsets.back();
  auto density = numbers<T>(samples), values = numbers<T>(samples * channels), t_starts = numbers<T>(samples),
       t_ends = numbers<T>(samples, 1, 2), weights = numbers<T>(samples), out = numbers<T>(rays * channels),
       opacity = numbers<T>(rays), depth = numbers<T>(rays), g = numbers<T>(samples),
       h = numbers<T>(samples * channels);
  CompositeArgs<T> a = {};
  a.density = density.data(), a.values = values.data(), a.t_starts = t_starts.data(), a.t_ends = t_ends.data();
  a.ray_offsets = offsets.data(), a.num_rays = rays, a.num_samples = samples, a.channels = channels;
  a.min_transmittance = T(0.3), a.out_values = out.data(), a.opacity = opacity.data(), a.depth = depth.data();
  a.weights = weights.data(), a.grad_out_values = out.data(), a.grad_opacity = opacity.data();
  a.grad_depth = depth.data(), a.grad_weights = density.data(), a.grad_density = g.data(), a.grad_values = h.data();
  cpu::composite(a, {});
  cpu::composite_backward(a, {});
  for (T x : opacity) expect(x >= 0 && x <= 1 + 1e-5, "opacity lies between 0 and 1");
  const DistortionArgs<T> b = {weights.data(),          t_starts.data(), t_ends.data(),  offsets.data(), rays,
                               int64_t(weights.size()), depth.data(),    opacity.data(), g.data()};
  cpu::distortion(b, {});
  cpu::distortion_backward(b, {});
}

template <class T>
void updates(int64_t rows, int64_t channels) {
  const int64_t count = rows * channels;
  auto param = numbers<T>(count), first = numbers<T>(count), second = numbers<T>(count), grad = numbers<T>(count, -1);
  const auto rates = numbers<float>(channels);
  const float step = 3;
  for (const int64_t lr_count : {int64_t(1), channels}) {
    for (const std::vector<int64_t>& visited : {std::vector<int64_t>(), std::vector<int64_t>{rows - 1, 0}}) {
      const bool all = visited.empty();
      if (rows == 0 && !all) continue;
      const AdamArgs<T> a = {param.data(),
                             first.data(),
                             second.data(),
                             grad.data(),
                             channels,
                             rows,
                             all ? nullptr : visited.data(),
                             all        ? rows
                             : rows > 1 ? 2
                                        : 1,
                             rates.data(),
                             lr_count,
                             &step,
                             0.9,
                             0.99,
                             1e-8};
      cpu::adam(a, {});
    }
  }
  const TotalVariationArgs<T> b = {param.data(), {}, {rows, 1, 1}, channels, grad.data(), T(0.1), false, nullptr, 0};
  cpu::total_variation(b, {});
}

template <class T>
void colors(int64_t num_basis, int64_t padding) {
  const int64_t samples = 5, channels = 3 * num_basis + padding;
  const auto values = numbers<T>(samples * channels), basis = numbers<T>(2 * num_basis);
  const std::vector<int64_t> rays = {0, 1, -1, 2, INT64_MAX};
  std::vector<T> out(samples * 3), grad(samples * channels);
  const ContractBasisArgs<T> a = {values.data(), basis.data(), rays.data(), samples,    2,
                                  channels,      num_basis,    out.data(),  out.data(), grad.data()};
  cpu::contract_basis(a, {});
  cpu::contract_basis_backward(a, {});
  expect(!std::isnan(out[5]) && std::isnan(out[6]) && std::isnan(out[14]), "no ray there: not a number");
}

void pixels() {
  const std::vector<uint8_t> images = {0, 255, 51};
  const std::vector<int64_t> indices = {0, -1, INT64_MAX, INT64_MIN, 1};
  std::vector<float> out(15, 7);
  const SampleImagesArgs<float> a = {images.data(), 1, 3, indices.data(), 5, out.data()};
  cpu::sample_images(a, {});
  expect(out[1] == 1 && std::isnan(out[3]) && std::isnan(out[14]), "no pixel there: not a number");
}

// Two cameras of one size or as if of several, pinholes or lenses; pixels from the first to the last of all, and others.
template <class T>
void rays_of_pixels(int64_t width, int64_t height, int64_t rays_per_pixel, bool of_sizes, bool through_lenses) {
  const int64_t last = 2 * width * height - 1, half = width * height;
  const std::vector<int64_t> pixels = {0, -1, last, last + 1, half, half - 1, INT64_MAX, INT64_MIN};
  const auto c2w = numbers<T>(2 * 12, -1), intrinsics = numbers<T>(2 * 4, 1, 2),
             subpixels = numbers<T>(2 * rays_per_pixel, -0.5, 0.5),
             coefficients = numbers<T>(2 * kCoefficients, -0.01, 0.01);
  const std::vector<int64_t> sizes = {width, height, width, height}, first_pixels = {0, half, 2 * half};
  const std::vector<int64_t> models = {kPerspective, kFisheye}, wrong = {INT64_MIN, -1, INT64_MAX, 0, INT64_MIN};
  const std::vector<T> reach = {T(2), T(1)};
  const int64_t rays = int64_t(pixels.size()) * rays_per_pixel;
  std::vector<T> origins(size_t(3 * rays), T(7)), directions(size_t(3 * rays), T(7));
  CameraRaysArgs<T> a = {};
  a.c2w = c2w.data(), a.intrinsics = intrinsics.data(), a.num_cameras = 2, a.width = width, a.height = height;
  a.pixel_indices = pixels.data(), a.num_pixels = int64_t(pixels.size());
  a.subpixels = subpixels.data(), a.rays_per_pixel = rays_per_pixel;
  a.origins = origins.data(), a.directions = directions.data();
  if (through_lenses) {
    a.lens_models = models.data(), a.lens_coefficients = coefficients.data();
    a.lens_reach = a.lens_rim = reach.data(), a.iterations = 4;
  }
  if (of_sizes) {  // such that do not fit lead to some pixel or none
    a.sizes = wrong.data(), a.first_pixels = wrong.data() + 1;
    cpu::camera_rays(a, {});
    a.sizes = sizes.data(), a.first_pixels = first_pixels.data();
  }
  cpu::camera_rays(a, {});
  for (int64_t r = 0; r < rays; ++r) {
    const int64_t pixel = pixels[size_t(r / rays_per_pixel)], camera = pixel < half ? 0 : 1;
    const T *origin = &origins[size_t(3 * r)], *d = &directions[size_t(3 * r)];
    const T length = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
    if (pixel < 0 || pixel > last)
      expect(std::isnan(origin[0]) && std::isnan(origin[2]) && std::isnan(length), "no pixel there: not a number");
    else expect(origin[2] == c2w[size_t(12 * camera + 11)] && std::abs(length - 1) < 1e-5, "a unit ray of its camera");
  }
}

template <class T>
void everything() {
  for (const int64_t channels : {1, 3, 4, 12, 28})
    for (const bool lost : {false, true}) {
      trilinear_is_adjoint<T>(5, 4, 3, channels, 200, lost);
      trilinear_is_adjoint<T>(1, 1, 1, channels, 20, lost);
      trilinear_is_adjoint<T>(1, 3, 1, channels, 1, lost);
    }
  trilinear_is_adjoint<T>(2, 2, 2, 4, 0, false);
  for (const double crowd : {0.0, 0.8}) {
    order_keeps_the_sum<T, int32_t>(5, 4, 3, 4, 400, crowd);
    order_keeps_the_sum<T, int64_t>(6, 1, 7, 3, 333, crowd);
  }
  order_keeps_the_sum<T, int32_t>(1, 1, 1, 2, 64, 0);
  order_keeps_the_sum<T, int32_t>(3, 3, 3, 2, 0, 0);
  for (const int64_t rays : {0, 1, 100})
    for (const int64_t capacity : {0, 1, 50, 100000})
      for (const double far : {100.0, 1.0, 0.0, -1.0, double(INFINITY)})
        march_counts_what_it_fills<T>(rays, capacity, far);
  for (const int64_t channels : {0, 1, 3, 7}) {
    sums_over_rays<T>({0}, channels);
    sums_over_rays<T>({0, 0, 0}, channels);
    sums_over_rays<T>({0, 1, 1, 40, 300}, channels);
  }
  for (const int64_t rows : {0, 1, 33, 1000})
    for (const int64_t channels : {1, 5}) updates<T>(rows, channels);
  for (const int64_t rays : {0, 1, 4})
    for (const bool of_sizes : {false, true})
      for (const bool through_lenses : {false, true}) {
        rays_of_pixels<T>(3, 2, rays, of_sizes, through_lenses);
        rays_of_pixels<T>(1, 1, rays, of_sizes, through_lenses);
        rays_of_pixels<T>(1 << 20, 1 << 20, rays, of_sizes, through_lenses);
      }
  for (const int64_t basis : {1, 2, 9, 16}) colors<T>(basis, basis % 4);
}

}  // namespace

int main() {
  for (const int64_t threads : {1, 3, 16}) {
    torch::stable::num_threads = threads;
    everything<float>();
    everything<double>();
    pixels();
  }
  return failures ? 1 : 0;
}
