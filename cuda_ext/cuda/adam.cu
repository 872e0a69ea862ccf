// adam_step on CUDA: as many blocks as the chip holds at a time stride over packs of 16 bytes, one thread a block
// computes the scales. Each thread first reads the gradients of a few packs, all on their way together; where one is
// zero nothing else of its pack is touched. Rows of other lengths, and C = 1 with rows, go value by value in the same
// way. Rows of the channels that fields have are taken by warps (adam_by_warp.cuh).
//
// With total variation the neighbors of a pack come with its value and its moments, and the gradient is read once, never
// written back. A neighbor is read before its own step or after it, as it happens: the threads of a pass do not wait for
// each other. Loads and stores are whole packs, so either value is seen, and the slope differs by the change of one step at
// most. A caller that needs one order runs total_variation_grad before instead.
#include "../math/channels.h"
#include "../portable/adam.h"
#include "variation.cuh"
// Behind its packs.
#include "adam_by_warp.cuh"

namespace nerf::cuda {
namespace {

constexpr int kBlocksPerProcessor = 4;  // leaves 64 registers per thread
constexpr int64_t kMostRows = INT32_MAX - (1 << 24);  // a stride beyond which still is an int

// Total variation that a step adds to the gradient of the pack at i: none, of a dense or of a sparse grid. n: which of the
// visited rows, column: where the pack begins in it.
struct NoVariation {
  static constexpr bool kAdds = false;
  static constexpr int kAhead = 4;
};

template <class S>
struct DenseVariation {
  static constexpr bool kAdds = true;
  static constexpr int kAhead = 3;
  TotalVariationArgs<S> args;

  template <int kSize, class V>
  __device__ NearPacks<Wide<V>, kSize> near(const V* param, int64_t i, int64_t, int64_t) const {
    return {param, i, neighbors(args, place(i, args.channels).row)};
  }
};

template <class S>
struct SparseVariation {
  static constexpr bool kAdds = true;
  static constexpr int kAhead = 2;
  TotalVariationArgs<S> args;

  template <int kSize, class V>
  __device__ NearPacks<Wide<V>, kSize> near(const V* param, int64_t i, int64_t n, int64_t column) const {
    const SparseRows rows = args.table.sparse();
    const SparseVertex vertex = sparse_vertex(args, rows, args.rows[n]);
    if (vertex.vertex < 0) return {param, i, Neighbors{}};
    return {param, i, sparse_neighbors(args, rows, vertex, column)};
  }
};

// Columns of one kind of row: kPacks packs of kSize values, or, where kPacks is 0, a number not known at compile time.
template <class S, int kSize, int kPacks, class Variation>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor) adam_kernel(AdamArgs<S> a, Variation variation) {
  using T = Wide<S>;
  __shared__ AdamScale<T> scale;
  if (threadIdx.x == 0) scale = adam_scale(a);
  __syncthreads();
  const int64_t packs = kPacks ? kPacks : a.channels / kSize, count = a.num_rows * packs;
  constexpr int kAhead = Variation::kAhead;
  const int64_t tile = kThreads * kAhead;
  for (int64_t first = blockIdx.x * tile + threadIdx.x; first < count; first += gridDim.x * tile) {
    int64_t start[kAhead];  // of the pack; its moments start at kSize * k
    Pack<T, kSize> grad[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int64_t k = first + j * kThreads;
      const Place p = place(min2(k, count - 1), packs);
      const int64_t row = a.rows ? a.rows[p.row] : p.row;
      start[j] = k < count && row >= 0 && row < a.all_rows ? (row * packs + p.column) * kSize : -1;
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      grad[j] = start[j] < 0 ? Pack<T, kSize>{} : load_wide<kSize>(a.grad + start[j]);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (is_zero(grad[j])) continue;
      const int64_t moment = kSize * (first + j * kThreads);
      auto p = load<kSize>(a.param + start[j]);
      auto m = load<kSize>(a.exp_avg + moment), v = load<kSize>(a.exp_avg_sq + moment);
      const float* lr = a.lr + (a.lr_count == 1 ? 0 : start[j] % (packs * kSize));
      const Place at = place(first + j * kThreads, packs);  // its random bits are those of the row in the list
      const uint32_t seed = random_row(*a.step, at.row), column = at.column * kSize;
      if constexpr (Variation::kAdds) {
        const auto slopes = variation.template near<kSize>(a.param, start[j], at.row, column).slopes(widened(p));
#pragma unroll
        for (int c = 0; c < kSize; ++c)
          if (grad[j].v[c] != T(0)) grad[j].v[c] += variation.args.weight * slopes.v[c];
      }
#pragma unroll
      for (int c = 0; c < kSize; ++c)
        adam_stored(a, scale, T(lr[a.lr_count == 1 ? 0 : c]), grad[j].v[c], p.v[c], m.v[c], v.v[c],
                    random_bits(seed, column + c));
      store(a.param + start[j], p);
      store(a.exp_avg + moment, m);
      store(a.exp_avg_sq + moment, v);
      store(a.grad + start[j], Pack<Gradient<S>, kSize>{});
    }
  }
}

template <int kSize, class S, class Variation = NoVariation>
void launch_adam(const AdamArgs<S>& a, Stream stream, const Variation& variation = {}) {
  const int64_t packs = a.channels / kSize;
  constexpr bool kOne = kSize == 1 && Variation::kAdds;  // only of one channel (adam_smooth)
  auto kernel = adam_kernel<S, kSize, kOne, Variation>;
  if constexpr (kSize == 1 || !Variation::kAdds) {
    if (packs == 1) kernel = adam_kernel<S, kSize, 1, Variation>;
  }
  const int64_t needed = (a.num_rows * packs + Variation::kAhead - 1) / Variation::kAhead;
  launch(kernel, min2(needed, processors(stream) * kBlocksPerProcessor * kThreads), "adam_step", stream, a,
         variation);
}

// By warps: whether rows have one of these numbers of channels, those of fields, and can be counted in 32 bits.
template <int... kChannels, class S, class Beside>
bool launch_by_warp(const AdamArgs<S>& a, Stream stream, const Beside& beside) {
  if (a.all_rows > kMostRows || a.num_rows > kMostRows) return false;
  bool launched = false;
  const auto known = [&](auto channels) {
    const int64_t most = processors(stream) * kBlocksPerProcessor * kThreads;
    const auto kernel = adam_by_warp_kernel<S, channels.value, Beside>;
    launch(kernel, min2(a.num_rows, most), "adam_step", stream, a, beside);
    launched = true;
  };
  with_channels(Channels<kChannels...>(), a.channels, known, [] {});
  return launched;
}

template <class S>
bool is_aligned(const AdamArgs<S>& a) {
  return is_pack_aligned(a.param) && is_pack_aligned(a.exp_avg) && is_pack_aligned(a.exp_avg_sq) &&
         is_pack_aligned(a.grad);
}

template <int kSize, class S>
void launch_smooth(const AdamSmoothArgs<S>& a, Stream stream) {
  using V = typename AdamSmoothArgs<S>::Smoothed;
  if constexpr (kSize > 1) {
    const bool sparse = a.variation.table.words;
    const int64_t* n = a.variation.vertices;
    const bool counted = n[0] * n[1] * n[2] <= kMostRows &&
                         (sparse ? launch_by_warp<16>(a.adam, stream, SparseBeside<V>{a.variation})
                                 : launch_by_warp<16>(a.adam, stream, DenseBeside<V>{a.variation}));
    if (counted) return;
  }
  if (a.variation.table.words) launch_adam<kSize>(a.adam, stream, SparseVariation<V>{a.variation});
  else launch_adam<kSize>(a.adam, stream, DenseVariation<V>{a.variation});
}

}  // namespace

// Nobody trains in double, and every kernel takes the compiler seconds and the library room.
template <>
void adam(const AdamArgs<double>& a, Stream stream) {
  cuda_plain::adam(a, stream);
}

template <class S>
void adam(const AdamArgs<S>& a, Stream stream) {
  constexpr int kSize = kPackSize<Wide<S>>;
  const bool aligned = is_aligned(a);
  if (aligned && launch_by_warp<12, 16, 28>(a, stream, NoneBeside())) return;
  if (aligned && a.channels % kSize == 0) return launch_adam<kSize>(a, stream);
  const int64_t values = a.all_rows * a.channels;
  // Random bits ask where a row ends.
  const bool by_row = kHasShortMoments<S> || a.rows || a.lr_count != 1;
  if (!aligned || by_row || values % kSize != 0) return launch_adam<1>(a, stream);
  AdamArgs<S> flat = a;  // all rows at one rate: where a row ends does not matter
  flat.channels = kSize;
  flat.all_rows = flat.num_rows = values / kSize;
  launch_adam<kSize>(flat, stream);
}

// One pass for the rows that fields have; two for others and for double.
template <class S>
void adam_smooth(const AdamSmoothArgs<S>& a, Stream stream) {
  if constexpr (sizeof(Wide<S>) == 4) {
    constexpr int kSize = kPackSize<Wide<S>>;
    if (a.adam.channels == 1) return launch_smooth<1>(a, stream);
    if (is_aligned(a.adam) && a.adam.channels % kSize == 0) return launch_smooth<kSize>(a, stream);
  }
  total_variation(a.variation, stream);
  adam(a.adam, stream);
}

template void adam(const AdamArgs<float>&, Stream);
template void adam(const AdamArgs<ShortMoments>&, Stream);
template void adam(const AdamArgs<ShortValues>&, Stream);
NERF_INSTANTIATE(adam_smooth, AdamSmoothArgs)
template void adam_smooth(const AdamSmoothArgs<ShortMoments>&, Stream);
template void adam_smooth(const AdamSmoothArgs<ShortValues>&, Stream);

}  // namespace nerf::cuda
