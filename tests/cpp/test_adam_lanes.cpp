// The kernel of cuda_ext/cuda/adam_by_warp.cuh on a stand-in for a GPU, against loops over math/adam.h: which rows have a
// gradient, who their neighbors are, rows and vertices that do not exist, rows of packs that do not fill a warp.
#include "emulated_gpu.h"
#include "expect.h"
#include "math/adam.h"
#include "packs.h"

// Behind the stand-in.
#include "cuda/adam_by_warp.cuh"

namespace {

using namespace nerf;
using namespace nerf::cuda;

constexpr int64_t kSize[3] = {6, 5, 37};  // lines of two words, which end within the second
constexpr int64_t kVertices = 6 * 5 * 37;

template <class S>
struct State {
  std::vector<Value<S>> param;
  std::vector<float> lr;
  std::vector<Gradient<S>> grad;
  std::vector<Moment<S>> first, second;
};

enum class Smooth { kNot, kDense, kSparse };

// Of a sparse grid a quarter of the vertices is missing. Rows are listed with gaps.
template <class S, int kPacks>
void step(Smooth smooth, bool rate_per_channel, float number_of_step) {
  constexpr int kChannels = 4 * kPacks;
  std::vector<int64_t> vertex_of, row_of(kVertices, -1);
  std::vector<uint64_t> words;
  for (int64_t line = 0; line < kSize[0] * kSize[1]; ++line)
    for (int word = 0; word < 2; ++word) {
      const uint64_t before = vertex_of.size();
      uint64_t bits = 0;
      for (int64_t z = 32 * word; z < min2<int64_t>(32 * word + 32, kSize[2]); ++z)
        if (smooth != Smooth::kSparse || number() < 0.75) {
          bits |= uint64_t(1) << (z - 32 * word);
          row_of[line * kSize[2] + z] = int64_t(vertex_of.size());
          vertex_of.push_back(line * kSize[2] + z);
        }
      words.push_back(bits | before << 32);
    }
  const int64_t all = int64_t(vertex_of.size());

  std::vector<int64_t> rows, vertices;
  for (int64_t row = 0; row < all; row += 1 + int64_t(number(0, 2.5))) {
    rows.push_back(row);
    vertices.push_back(vertex_of[row]);
  }
  rows[3] = -1, rows[40] = all, rows[41] = int64_t(1) << 40, rows[42] = -rows[41];
  const std::vector<int64_t> real = vertices;
  // Their rows have no neighbors then.
  vertices[7] = -1, vertices[50] = kVertices, vertices[51] = int64_t(1) << 40, vertices[52] = -vertices[51];

  State<S> now;
  for (int64_t i = 0; i < all * kChannels; ++i)
    now.param.push_back(narrow_at_random<Value<S>>(float(number(-1, 1)), 0));
  now.grad.assign(size_t(all * kChannels), Gradient<S>{});
  // Of two vertices side by side one has a gradient at most: the order in which they step does not matter then.
  for (int64_t row = 0; row < all; ++row) {
    const int64_t v = vertex_of[row], place = v / kSize[2] / kSize[1] + v / kSize[2] % kSize[1] + v % kSize[2];
    if (place % 2 || number() < 0.4 || (row > 300 && row < 420)) continue;
    for (int c = 0; c < kChannels; ++c)
      if (c / 4 != row % (kPacks + 1) && number() < 0.9)
        now.grad[row * kChannels + c] = narrow<Gradient<S>>(float(number(-1, 1)));
  }
  now.grad[all / 2 * kChannels] = narrow<Gradient<S>>(1e30f);  // whose square is not finite
  for (size_t i = 0; i < rows.size() * kChannels; ++i) {
    now.first.push_back(narrow<Moment<S>>(float(number(-1, 1))));
    now.second.push_back(narrow<Moment<S>>(float(number(0, 1))));
  }
  for (int c = 0; c < (rate_per_channel ? kChannels : 1); ++c) now.lr.push_back(float(number(0.01, 0.1)));
  const State<S> before = now;

  const auto arguments = [&](State<S>& s) {
    AdamArgs<S> a = {};
    a.param = s.param.data(), a.exp_avg = s.first.data(), a.exp_avg_sq = s.second.data(), a.grad = s.grad.data();
    a.channels = kChannels, a.all_rows = all, a.rows = rows.data(), a.num_rows = int64_t(rows.size());
    a.lr = s.lr.data(), a.lr_count = int64_t(s.lr.size()), a.step = &number_of_step;
    a.beta1 = 0.9, a.beta2 = 0.99, a.eps = 1e-8;
    return a;
  };
  using Smoothed = typename AdamSmoothArgs<S>::Smoothed;
  TotalVariationArgs<Smoothed> variation = {};
  std::copy(kSize, kSize + 3, variation.vertices);
  variation.weight = 0.7f, variation.rows = vertices.data(), variation.num_rows = int64_t(vertices.size());
  if (smooth == Smooth::kSparse) variation.table = {words.data(), all};
  const AdamArgs<S> a = arguments(now);
  emulated::launch({2, 1}, kThreads, 0, [&] {
    if (smooth == Smooth::kNot) adam_by_warp_kernel<S, 4 * kPacks>(a, NoneBeside());
    else if constexpr (kPacks == 4) {
      if (smooth == Smooth::kDense) adam_by_warp_kernel<S, 4 * kPacks>(a, DenseBeside<Smoothed>{variation});
      else adam_by_warp_kernel<S, 4 * kPacks>(a, SparseBeside<Smoothed>{variation});
    }
  });

  State<S> expected = before;
  const AdamArgs<S> by_loops = arguments(expected);
  for (size_t n = 0; n < rows.size(); ++n) {
    const int64_t row = rows[n];
    if (row < 0 || row >= all) continue;
    const bool listed = smooth == Smooth::kDense || (vertices[n] >= 0 && vertices[n] < kVertices);
    const int64_t v = real[n], at[3] = {v / kSize[2] / kSize[1], v / kSize[2] % kSize[1], v % kSize[2]};
    const int64_t stride[3] = {kSize[1] * kSize[2], kSize[2], 1};
    for (int c = 0; c < kChannels; ++c) {
      const int64_t i = row * kChannels + c;
      float grad = widen(expected.grad[i]);
      if (grad == 0) continue;
      float sum = 0;
      for (int axis = 2; axis >= 0; --axis)
        for (const int64_t to : {-1, 1}) {
          if (smooth == Smooth::kNot || !listed || at[axis] + to < 0 || at[axis] + to >= kSize[axis]) continue;
          const int64_t other = row_of[v + to * stride[axis]];
          const float own = widen(before.param[row * kChannels + c]);
          if (other >= 0) sum += variation_slope(own, widen(before.param[other * kChannels + c]));
        }
      grad += variation.weight * sum;
      const int64_t m = int64_t(n) * kChannels + c;  // the kernel adds both gradients in float32
      adam_stored(by_loops, adam_scale(by_loops), expected.lr[rate_per_channel ? c : 0], grad, expected.param[i],
                  expected.first[m], expected.second[m],
                  random_bits(random_row(number_of_step, int64_t(n)), uint32_t(c)));
      expected.grad[i] = Gradient<S>{};
    }
  }
  bool same = true, still = true;
  for (size_t i = 0; i < now.param.size(); ++i) {
    same &= widen(now.param[i]) == widen(expected.param[i]);
    still &= widen(now.param[i]) == widen(before.param[i]);
  }
  for (size_t i = 0; i < now.grad.size(); ++i) same &= widen(now.grad[i]) == widen(expected.grad[i]);
  for (size_t i = 0; i < now.first.size(); ++i)
    same &= widen(now.first[i]) == widen(expected.first[i]) && widen(now.second[i]) == widen(expected.second[i]);
  expect(same, "a step, to the last bit");
  expect(still == (number_of_step == 0), "step 0 leaves parameters alone");
}

template <class S>
void steps() {
  for (const bool rate_per_channel : {false, true}) {
    step<S, 3>(Smooth::kNot, rate_per_channel, 3);
    step<S, 4>(Smooth::kNot, rate_per_channel, 3);
    step<S, 7>(Smooth::kNot, rate_per_channel, 3);
    step<S, 4>(Smooth::kDense, rate_per_channel, 3);
    step<S, 4>(Smooth::kSparse, rate_per_channel, 3);
  }
  step<S, 4>(Smooth::kSparse, false, 0);
}

}  // namespace

int main() {
  steps<float>();
  steps<ShortMoments>();
  steps<ShortValues>();
  return failures ? 1 : 0;
}
