// The kernels of cuda_ext/cuda/composite_lanes.cuh on a stand-in for a GPU, against the loops of math/composite.h: rays
// without a sample and of many rounds, samples that nothing is seen of, rays that end beside longer ones, samples that
// belong to no ray, rows that several lanes share, values and gradients of 16 bits.
#include "emulated_gpu.h"
#include "expect.h"
#include "packs.h"

// Behind the stand-in.
#include "cuda/composite_lanes.cuh"

namespace {

using namespace nerf;
using namespace nerf::cuda;

constexpr int kCounts[] = {3, 40, 8, 0, 1, 70, 33, 0, 17, 32, 64, 5, 100, 9, 24, 7, 16, 2, 0};
constexpr int64_t kTail = 6;  // samples behind the last ray

struct Settings {
  float min_transmittance, full_gradient_from;
  bool every_gradient;  // of depth and of weights too
};

template <class V>
std::vector<V> drawn(size_t count, double low) {
  std::vector<V> made;
  for (size_t i = 0; i < count; ++i) made.push_back(narrow<V>(float(number(low, 1))));
  return made;
}

// Numbers that no kernel writes.
template <class V>
std::vector<V> untouched(size_t count) {
  return std::vector<V>(count, narrow<V>(-77.0f));
}

template <class V>
struct Results {
  std::vector<float> values, opacity, depth, weights, grad_density;
  std::vector<V> grad_values;
  Results(size_t rays, size_t samples, size_t channels)
      : values(untouched<float>(rays * channels)), opacity(untouched<float>(rays)), depth(untouched<float>(rays)),
        weights(untouched<float>(samples)), grad_density(untouched<float>(samples)),
        grad_values(untouched<V>(samples * channels)) {}
  void receive(CompositeArgs<V>& a) {
    a.out_values = values.data(), a.opacity = opacity.data(), a.depth = depth.data(), a.weights = weights.data();
    a.grad_density = grad_density.data(), a.grad_values = grad_values.data();
  }
};

template <class V>
void loops(const CompositeArgs<V>& a) {
  for (int64_t r = 0; r < a.num_rays; ++r) composite_ray(a, r), composite_ray_backward(a, r);
  for (int64_t i = a.offset(a.num_rays); i < a.num_samples; ++i) a.weights[i] = 0, clear_gradients(a, i);
}

template <class V, int kChannels, int kGroup>
void kernels(const CompositeArgs<V>& a) {
  const int blocks = int((a.num_rays * kGroup + kRayBlock - 1) / kRayBlock);
  gridDim.x = blocks;
  emulated::launch({blocks, 1}, kRayBlock, 0, [&] {
    composite_kernel<V, kChannels, kGroup>(a, 1 - std::log(a.min_transmittance));
  });
  emulated::launch({blocks, 1}, kRayBlock, 0, [&] { composite_backward_kernel<V, kChannels, kGroup>(a); });
}

template <class V>
void expect_alike(const std::vector<V>& found, const std::vector<V>& wanted, double tolerance, const char* what) {
  for (size_t i = 0; i < wanted.size(); ++i)
    expect_near(widen(found[i]), widen(wanted[i]), tolerance * (1 + std::abs(widen(wanted[i]))), what);
}

// kChannels: as the kernel is told, channels: how many there are.
template <class V, int kChannels, int kGroup>
void composite(int64_t channels, const Settings& settings) {
  std::vector<int64_t> offsets = {0};
  for (const int count : kCounts) offsets.push_back(offsets.back() + count);
  const size_t rays = offsets.size() - 1, samples = size_t(offsets.back() + kTail);
  std::vector<float> density = drawn<float>(samples, 0), starts(samples), ends(samples);
  std::vector<V> values = drawn<V>(samples * channels, -1);
  for (size_t i = 0; i < samples; ++i) {
    starts[i] = 0.5f + 0.1f * float(i % 50), ends[i] = starts[i] + 0.1f;
    if (i % 23 == 11) density[i] = 0;
    if (i % 31 == 30) density[i] = 40;
  }
  // Of one ray all but the first is hidden, and infinite.
  const int64_t opaque = offsets[5];
  density[opaque] = 1e9f;
  for (int64_t c = channels * (opaque + 1); settings.min_transmittance > 0 && c < channels * offsets[6]; ++c)
    values[c] = narrow<V>(INFINITY);
  const std::vector<float> of_values = drawn<float>(rays * channels, -1), of_opacity = drawn<float>(rays, -1),
                           of_depth = drawn<float>(rays, -1), of_weights = drawn<float>(samples, -1);
  CompositeArgs<V> a = {};
  a.density = density.data(), a.values = values.data(), a.t_starts = starts.data(), a.t_ends = ends.data();
  a.ray_offsets = offsets.data();
  a.num_rays = int64_t(rays), a.num_samples = int64_t(samples), a.channels = channels;
  a.min_transmittance = settings.min_transmittance, a.full_gradient_from = settings.full_gradient_from;
  a.grad_out_values = of_values.data(), a.grad_opacity = of_opacity.data();
  if (settings.every_gradient) a.grad_depth = of_depth.data(), a.grad_weights = of_weights.data();

  Results<V> found(rays, samples, channels), wanted(rays, samples, channels);
  wanted.receive(a), loops(a);
  found.receive(a), kernels<V, kChannels, kGroup>(a);
  expect_alike(found.values, wanted.values, 1e-5, "composited values");
  expect_alike(found.opacity, wanted.opacity, 1e-5, "opacity");
  expect_alike(found.depth, wanted.depth, 1e-5, "depth");
  expect_alike(found.weights, wanted.weights, 1e-6, "weights");
  expect_alike(found.grad_density, wanted.grad_density, 1e-5, "gradient of density");
  expect_alike(found.grad_values, wanted.grad_values, sizeof(V) == 2 ? 1.0 / 128 : 1e-6, "gradient of values");
}

template <class V, int kChannels>
void rays(int64_t channels) {
  for (const Settings& settings : {Settings{0, 0, true}, Settings{1e-3f, 0, false}, Settings{0.05f, 3, true}}) {
    composite<V, kChannels, 32>(channels, settings);
    composite<V, kChannels, kShortRay>(channels, settings);
  }
}

}  // namespace

int main() {
  rays<float, 0>(0);
  rays<float, 3>(3);
  rays<float, 12>(12);
  rays<float, 16>(16);
  rays<float, -32>(20);
  rays<BFloat16, 16>(16);
  rays<BFloat16, -32>(4);
  rays<BFloat16, -32>(28);
  return failures ? 1 : 0;
}
