// adam_step on CUDA: as many blocks as the chip holds at a time stride over packs of 16 bytes, one thread a block
// computes the scales. Each thread first reads the gradients of a few packs, all on their way together; where one is
// zero nothing else of its pack is touched. Rows of other lengths, and C = 1 with rows, go value by value in the same
// way.
#include "../math/channels.h"
#include "../portable/adam.h"
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr int kAhead = 4;               // packs whose gradients a thread reads at a time
constexpr int kBlocksPerProcessor = 4;  // leaves 64 registers per thread

// Columns of one kind of row: kPacks packs of kSize values, or, where kPacks is 0, a number not known at compile time.
template <class S, int kSize, int kPacks>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor) adam_kernel(AdamArgs<S> a) {
  using T = Wide<S>;
  __shared__ AdamScale<T> scale;
  if (threadIdx.x == 0) scale = adam_scale(a);
  __syncthreads();
  const int64_t packs = kPacks ? kPacks : a.channels / kSize, count = a.num_rows * packs;
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
    for (int j = 0; j < kAhead; ++j) grad[j] = start[j] < 0 ? Pack<T, kSize>{} : load<kSize>(a.grad + start[j]);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (is_zero(grad[j])) continue;
      const int64_t moment = kSize * (first + j * kThreads);
      auto p = load<kSize>(a.param + start[j]);
      auto m = load<kSize>(a.exp_avg + moment), v = load<kSize>(a.exp_avg_sq + moment);
      const float* lr = a.lr + (a.lr_count == 1 ? 0 : start[j] % (packs * kSize));
      const Place at = place(first + j * kThreads, packs);  // its random bits are those of the row in the list
      const uint32_t seed = random_row(*a.step, at.row), column = at.column * kSize;
#pragma unroll
      for (int c = 0; c < kSize; ++c)
        adam_value(a, scale, T(lr[a.lr_count == 1 ? 0 : c]), grad[j].v[c], p.v[c], m.v[c], v.v[c],
                   random_bits(seed, column + c));
      store(a.param + start[j], p);
      store(a.exp_avg + moment, m);
      store(a.exp_avg_sq + moment, v);
      store(a.grad + start[j], Pack<T, kSize>{});
    }
  }
}

template <int kSize, class S>
void launch_adam(const AdamArgs<S>& a, Stream stream) {
  const int64_t packs = a.channels / kSize;
  auto kernel = adam_kernel<S, kSize, 0>;
  // What fields have. Nobody trains in double, and every kernel takes the compiler seconds.
  if constexpr (sizeof(Wide<S>) == 4) {
    if constexpr (kSize == 1) {
      if (packs == 1) kernel = adam_kernel<S, kSize, 1>;
    } else {
      const auto known = [&](auto channels) { kernel = adam_kernel<S, kSize, channels.value / kSize>; };
      with_channels<4, 16>(CommonChannels(), a.channels, known, [] {});
    }
  }
  const int64_t needed = (a.num_rows * packs + kAhead - 1) / kAhead;
  launch(kernel, min2(needed, processors(stream) * kBlocksPerProcessor * kThreads), "adam_step", stream, a);
}

}  // namespace

template <class S>
void adam(const AdamArgs<S>& a, Stream stream) {
  constexpr int kSize = kPackSize<Wide<S>>;
  const bool aligned = is_pack_aligned(a.param) && is_pack_aligned(a.exp_avg) && is_pack_aligned(a.exp_avg_sq) &&
                       is_pack_aligned(a.grad);
  if (aligned && a.channels % kSize == 0) return launch_adam<kSize>(a, stream);
  const int64_t values = a.all_rows * a.channels;
  // Random bits ask where a row ends.
  const bool by_row = std::is_same_v<S, ShortMoments> || a.rows || a.lr_count != 1;
  if (!aligned || by_row || values % kSize != 0) return launch_adam<1>(a, stream);
  AdamArgs<S> flat = a;  // all rows at one rate: where a row ends does not matter
  flat.channels = kSize;
  flat.all_rows = flat.num_rows = values / kSize;
  launch_adam<kSize>(flat, stream);
}

NERF_INSTANTIATE(adam, AdamArgs)
template void adam(const AdamArgs<ShortMoments>&, Stream);

}  // namespace nerf::cuda
