// Lenses with their derivatives, and photos compared beside each other, under g++ alone: no torch, no CUDA.
// tests/cpp/test_math_cpp.py compiles it with the sanitizers for addresses and undefined behaviour.
#include <limits>
#include <vector>

#include "compare_beside.h"
#include "expect.h"
#include "world_depth.h"

namespace {

using namespace nerf;

const double kCoefficientsOf[3][6] = {{0.1, -0.02, 0.01, 0.005, 0.01, 0.001}, {0.05, -0.01, 0.002, 0, 0, 0}, {}};
const double kReach[3] = {0.8, 1.2, 1};  // so near that some points lie beyond

void slopes_of_lenses() {
  for (int64_t model = 0; model < 3; ++model)
    for (int trial = 0; trial < 300; ++trial) {
      const Lens<double> lens = {model, kCoefficientsOf[model], kReach[model]};
      const double point[3] = {number(-2, 2), number(-2, 2), number(model == kPerspective ? 0.3 : -2, 2)};
      const double step[3] = {number(-1, 1), number(-1, 1), number(-1, 1)}, by = 1e-6;
      Dual<double> here[3], before[3], behind[3], u, v, u_before, v_before, u_behind, v_behind;
      for (int axis = 0; axis < 3; ++axis) {
        here[axis] = {point[axis], step[axis]};
        before[axis] = {point[axis] - by * step[axis]};
        behind[axis] = {point[axis] + by * step[axis]};
      }
      lens.distort(here, u, v);
      lens.distort(before, u_before, v_before);
      lens.distort(behind, u_behind, v_behind);
      // At the seam of a panorama and at the reach of a lens there is no slope.
      if (std::abs(u_behind.value - u_before.value) > 1) continue;
      const double wide = 1e-4 * (1 + std::abs(u.slope) + std::abs(v.slope));
      if (model != kPanorama && std::abs(std::hypot(point[0], point[1]) / point[2] - kReach[model]) < 1e-4) continue;
      expect_near(u.slope, (u_behind.value - u_before.value) / (2 * by), wide, "slope of u");
      expect_near(v.slope, (v_behind.value - v_before.value) / (2 * by), wide, "slope of v");
      expect(u_before.slope == 0 && v_before.slope == 0, "constants have no slope");
    }
}

void there_and_back() {
  for (int64_t model = 0; model < 3; ++model)
    for (int trial = 0; trial < 300; ++trial) {
      const Lens<double> lens = {model, kCoefficientsOf[model], kReach[model]};
      const double u = number(-0.45, 0.45), v = trial ? number(-0.45, 0.45) : 0;
      double direction[3];
      lens.undistort(u, v, 1e4, 10, direction);
      const Dual<double> point[3] = {3 * direction[0], 3 * direction[1], 3 * direction[2]};
      Dual<double> again_u, again_v;
      lens.distort(point, again_u, again_v);
      expect_near(again_u.value, u, 1e-9, "what is distorted again is where it was");
      expect_near(again_v.value, v, 1e-9, "what is distorted again is where it was");
    }
}

void lenses_are_finite() {
  const double far = std::numeric_limits<float>::max(), tiny = std::numeric_limits<float>::denorm_min();
  const double numbers[] = {0, 1, -1, tiny, -tiny, 1e-9, 1e9};
  for (int64_t model = 0; model < 3; ++model)
    for (const double x : numbers)
      for (const double y : numbers)
        for (const double z : numbers) {
          const Lens<double> lens = {model, kCoefficientsOf[model], kReach[model]};
          const Dual<double> point[3] = {x, y, z};
          Dual<double> u, v;
          lens.distort(point, u, v);
          expect(std::abs(u.value) < far && std::abs(v.value) < far, "what a lens shows is finite");
        }
}

void directions_across_a_ray() {
  for (int trial = 0; trial < 300; ++trial) {
    double d[3] = {number(-1, 1), number(-1, 1), trial % 3 ? number(-1, 1) : trial % 2 ? -1e-12 : 0.0}, a[3], b[3];
    const double length = std::sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
    for (double& x : d) x /= length;
    directions_across(d, a, b);
    const auto product = [](const double* x, const double* y) { return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]; };
    expect_near(product(a, a), 1, 1e-12, "unit");
    expect_near(product(b, b), 1, 1e-12, "unit");
    expect_near(std::abs(product(a, b)) + std::abs(product(a, d)) + std::abs(product(b, d)), 0, 1e-12, "across");
  }
}

// Two photos of width x height from one place: what each shows of a random picture.
void a_photo_beside_itself() {
  const int64_t width = 9, height = 7, pixels = 2 * width * height;
  std::vector<uint8_t> images(3 * pixels);
  for (size_t i = 0; i < images.size() / 2; ++i) images[i] = images[i + images.size() / 2] = uint8_t(number(0, 255));
  const double c2w[24] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
  const double intrinsics[8] = {10, 10, 4.5, 3.5, 10, 10, 4.5, 3.5};
  const int64_t sizes[4] = {width, height, width, height}, first[3] = {0, width * height, pixels}, beside[2] = {1, 0};
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    const int64_t column = pixel % width, row = pixel / width % height;
    double d[3] = {(column + 0.5 - 4.5) / 10, (3.5 - row - 0.5) / 10, -1}, o[3] = {0, 0, 0};
    const double length = std::sqrt(d[0] * d[0] + d[1] * d[1] + 1);
    for (double& x : d) x /= length;
    const double depth = 3, opacity = 1, grad = 1;
    double error = -1, grad_depth = -1, grad_opacity = -1;
    CompareBesideArgs<double> a = {};
    a.photos = {images.data(), sizes, first, pixels, 3, 2, 1};
    a.cameras.c2w = c2w, a.cameras.intrinsics = intrinsics;
    a.beside = beside, a.pixels = &pixel, a.origins = o, a.directions = d, a.depth = &depth, a.opacity = &opacity;
    a.views = 1, a.num_pixels = 1, a.error = &error;
    a.grad_error = &grad, a.grad_depth = &grad_depth, a.grad_opacity = &grad_opacity;
    compare_pixel_beside(a, 0);
    compare_beside_gradient(a, 0);
    const bool inside = column > 0 && column < width - 1 && row > 0 && row < height - 1;
    // The patch is laid out to first order about its middle, so that off it a little is seen of the pixels beside.
    expect(inside ? error >= 0 && error < 0.05 : error == 0, "a photo looks as itself, and has no patch at its edge");
    expect_near(grad_depth, 0, 1e-3, "from one place every depth looks the same");
    expect_near(grad_opacity, 0, 1e-2, "whatever the opacity");
  }
}

void depth_of_the_world() {
  const double center[3] = {0, 0, 0}, half[3] = {1, 1, 1};
  for (int trial = 0; trial < 200; ++trial) {
    double origin[3] = {number(-0.5, 0.5), number(-0.5, 0.5), number(-0.5, 0.5)}, d[3] = {number(-1, 1), number(-1, 1), 1};
    double out[3], depth = number(0.1, 2.5), opacity = number(0.3, 1), grad = 1, of_depth, of_opacity;
    WorldDepthArgs<double> a = {&depth, &opacity, origin, d, center, half, 1, 1, nullptr, &grad, &of_depth, &of_opacity};
    world_depth_gradient(a, 0);
    const double by = 1e-6;
    for (int i = 0; i < 2; ++i) {
      double& changed = i ? opacity : depth;
      const double before = changed;
      for (int side = 0; side < 2; ++side) {
        changed = before + (side ? by : -by);
        a.out = out + side;
        find_world_depth(a, 0);
      }
      changed = before;
      const double slope = (out[1] - out[0]) / (2 * by), found = i ? of_opacity : of_depth;
      expect_near(found, slope, 1e-3 * (1 + std::abs(slope)), i ? "slope by opacity" : "slope by depth");
    }
  }
}

}  // namespace

int main() {
  slopes_of_lenses();
  there_and_back();
  lenses_are_finite();
  directions_across_a_ray();
  a_photo_beside_itself();
  depth_of_the_world();
  return failures > 0;
}
