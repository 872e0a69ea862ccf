// index_add on CUDA, always one launch, without reading the index back. Rows of src whose index is outside of dst are
// left out. Three shapes, chosen by the contention (rows of src per row of dst) and the size of a slice:
//
// - scatter: one thread per 16 bytes of src (else per number), one atomic addition each. Floor: src once, dst twice.
// - own, several wide rows per target: a block owns a piece of one target row, finds the rows that go there by
//   walking the index, and sums them in registers, in their order. Src is read once, dst read and written once.
//   Where one order is asked for, always, and one block walks the whole index.
// - bins, many rows onto few numbers: a block adds its share of src into shared memory, then that to dst.
#include "../portable/index_add.h"
#include "pack.cuh"
#include "warp.cuh"

namespace nerf::cuda {
namespace {

constexpr int kWarps = kThreads / 32;
constexpr int64_t kBlocks = 8 * 132;                        // fill the largest chips; smaller ones take turns
constexpr int64_t k32Bit = INT32_MAX - kBlocks * kThreads;  // below it, numbers and steps over them fit 32 bits

// scatter

template <class T, int kCount, class Offset>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(IndexAddArgs<T> a, SliceWalk<Offset> walk, Divider<Offset> inner, Offset count) {
  const Offset i = Offset(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const Offset outside = inner.divide(i), inside = i - outside * inner.divisor;
  const Offset row = a.rows_inside ? inside : outside;
  Offset d, s;
  walk.locate(a.rows_inside ? outside : inside, d, s);
  Pack<T, kCount> pack = load_once<kCount>(a.src + (s + row * Offset(a.src_row_stride)));
  const int64_t target = a.index_at(row);
  if (!a.in_range(target)) return;
#pragma unroll
  for (int c = 0; c < kCount; ++c) pack.v[c] = narrow<T>(a.alpha * widen(pack.v[c]));
  add_atomic(a.dst + (d + Offset(target) * Offset(a.dst_row_stride)), pack);
}

// own

constexpr int kOwned = 2;        // packs per thread
constexpr int kBatch = 4;        // rows on the way at a time
constexpr int kWalkPerLane = 4;  // index values
constexpr int kWalk = kWalkPerLane * kThreads;
constexpr int64_t kTile = kOwned * kThreads;  // packs per block
constexpr int64_t kLeastWalk = 128;           // rows that are worth a block

struct Ownership {
  int64_t tiles, rows;  // pieces of a target row; rows of src that one block walks
  bool alone;           // it walks them all
};

// The rows from first on, up to kWalk of them, that go to this target, in their order. Returns how many.
template <class T>
__device__ int find_rows(const IndexAddArgs<T>& a, int64_t target, int64_t first, int64_t end, int* found) {
  __shared__ int found_by[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned here[kWalkPerLane];
  int count = 0;
#pragma unroll
  for (int j = 0; j < kWalkPerLane; ++j) {
    const int64_t i = first + (warp * kWalkPerLane + j) * 32 + lane;
    here[j] = __ballot_sync(kAllLanes, i < end && a.index_at(i) == target);
    count += __popc(here[j]);
  }
  if (lane == 0) found_by[warp] = count;
  __syncthreads();
  int slot = 0, total = 0;
  for (int w = 0; w < kWarps; ++w) {
    slot += w < warp ? found_by[w] : 0;
    total += found_by[w];
  }
#pragma unroll
  for (int j = 0; j < kWalkPerLane; ++j) {
    if (here[j] >> lane & 1) found[slot + __popc(here[j] & ((1u << lane) - 1))] = (warp * kWalkPerLane + j) * 32 + lane;
    slot += __popc(here[j]);
  }
  __syncthreads();
  return total;
}

// Four blocks on a multiprocessor keep 128 KiB on the way; packs of eight bfloat16 take too many registers for that.
template <class T, int kCount, class Offset>
__global__ void __launch_bounds__(kThreads, sizeof(T) < 4 ? 2 : 4)
    own_kernel(IndexAddArgs<T> a, SliceWalk<Offset> walk, Offset packs, Ownership own) {
  __shared__ int found[kWalk];
  const int64_t tile = blockIdx.x % own.tiles, others = blockIdx.x / own.tiles;
  const int64_t target = others % a.num_targets, begin = others / a.num_targets * own.rows;
  const int64_t end = min2(begin + own.rows, a.num_rows);
  Offset d[kOwned], s[kOwned];
  bool valid[kOwned];
  Wide<T> sum[kOwned][kCount] = {};
#pragma unroll
  for (int j = 0; j < kOwned; ++j) {
    const int64_t p = (tile * kOwned + j) * kThreads + threadIdx.x;
    valid[j] = p < packs;
    walk.locate(Offset(valid[j] ? p : 0), d[j], s[j]);
  }
  bool any = false;
  for (int64_t first = begin; first < end; first += kWalk) {
    const int total = find_rows(a, target, first, end, found);
    any |= total > 0;
    for (int r = 0; r < total; r += kBatch) {
      Pack<T, kCount> pack[kBatch][kOwned] = {};
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
        if (r + b < total) {
          const T* row = a.src + Offset(first + found[r + b]) * Offset(a.src_row_stride);
#pragma unroll
          for (int j = 0; j < kOwned; ++j)
            if (valid[j]) pack[b][j] = load_once<kCount>(row + s[j]);
        }
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
#pragma unroll
        for (int j = 0; j < kOwned; ++j)
#pragma unroll
          for (int c = 0; c < kCount; ++c) sum[j][c] += widen(pack[b][j].v[c]);
    }
    __syncthreads();  // before the next rows are written over these
  }
  if (!any) return;
#pragma unroll
  for (int j = 0; j < kOwned; ++j) {
    if (!valid[j]) continue;
    auto* place = reinterpret_cast<Pack<T, kCount>*>(a.dst + (d[j] + Offset(target) * Offset(a.dst_row_stride)));
    Pack<T, kCount> pack = {};
    if (own.alone) pack = *place;
#pragma unroll
    for (int c = 0; c < kCount; ++c) pack.v[c] = narrow<T>(widen(pack.v[c]) + a.alpha * sum[j][c]);
    if (own.alone) *place = pack;
    else add_atomic(&place->v[0], pack);
  }
}

// bins

constexpr int64_t kBins = 4096;
constexpr int64_t kRowsPerBin = 64;  // fewer do not pay for the shared memory

template <class T, class Offset>
__global__ void __launch_bounds__(kThreads)
    bins_kernel(IndexAddArgs<T> a, SliceWalk<Offset> walk, Divider<Offset> inner, Divider<Offset> elements,
                Offset count, Offset share) {
  __shared__ Wide<T> bins[kBins];
  const Offset num_bins = Offset(a.num_targets) * elements.divisor;
  for (Offset b = threadIdx.x; b < num_bins; b += kThreads) bins[b] = 0;
  __syncthreads();
  const Offset first = Offset(blockIdx.x) * share, end = min2(first + share, count);
  for (Offset i = first + threadIdx.x; i < end; i += kThreads) {
    const Offset outside = inner.divide(i), inside = i - outside * inner.divisor;
    const Offset row = a.rows_inside ? inside : outside, element = a.rows_inside ? outside : inside;
    Offset d, s;
    walk.locate(element, d, s);
    const Wide<T> value = widen(a.src[s + row * Offset(a.src_row_stride)]);
    const int64_t target = a.index_at(row);
    if (a.in_range(target)) atomicAdd(&bins[Offset(target) * elements.divisor + element], value);
  }
  __syncthreads();
  for (Offset b = threadIdx.x; b < num_bins; b += kThreads) {
    if (bins[b] == 0) continue;
    const Offset target = elements.divide(b);
    Offset d, s;
    walk.locate(b - target * elements.divisor, d, s);
    add_atomic(a.dst + (d + target * Offset(a.dst_row_stride)), Pack<T, 1>{narrow<T>(a.alpha * bins[b])});
  }
}

// The choice.

// How far the last number lies from the first.
int64_t span(const SliceDims& dims, const int64_t* strides, int64_t rows, int64_t row_stride) {
  int64_t last = (rows - 1) * row_stride;
  for (int d = 0; d < dims.count; ++d) last += (dims.size[d] - 1) * strides[d];
  return last;
}

// Whether slices are made of whole packs in both memories.
template <class T>
bool has_whole_packs(const IndexAddArgs<T>& a) {
  const SliceDims& dims = a.slice;
  const auto whole = [](int64_t x) { return x % kPackSize<T> == 0; };
  bool fits = !a.rows_inside && dims.count > 0 && dims.dst_stride[0] == 1 && dims.src_stride[0] == 1 &&
              whole(dims.size[0]) && is_pack_aligned(a.dst) && is_pack_aligned(a.src);
  fits = fits && whole(a.dst_row_stride) && (whole(a.src_row_stride) || a.num_rows == 1);
  for (int d = 1; fits && d < dims.count; ++d) fits = whole(dims.dst_stride[d]) && whole(dims.src_stride[d]);
  return fits;
}

// The index walk must stay cheap beside the rows: 8 bytes from a cache for each target, against what a block reads of
// each row.
template <class T, int kCount>
bool owns(const IndexAddArgs<T>& a) {
  if (a.deterministic) return true;
  const int64_t tile_bytes = kTile * kCount * int64_t(sizeof(T));
  return !a.rows_inside && a.num_rows >= 2 * a.num_targets && 2 * a.slice.num_elements() >= kTile * kCount &&
         16 * a.num_targets <= tile_bytes;
}

template <class T>
bool bins_pay(const IndexAddArgs<T>& a) {
  const int64_t elements = a.slice.num_elements();
  return a.num_targets <= kBins && a.num_targets * elements <= kBins && a.num_rows >= kRowsPerBin * a.num_targets &&
         a.num_rows * elements >= kBins;
}

// Own or scatter.
template <class T, int kCount, class Offset>
void add_packs(const IndexAddArgs<T>& a, Stream stream) {
  const SliceWalk<Offset> walk(a.slice, kCount);
  const int64_t packs = a.slice.num_elements() / kCount;
  if (!owns<T, kCount>(a)) {
    const Divider<Offset> inner{Offset(a.rows_inside ? a.num_rows : packs)};
    const int64_t count = a.num_rows * packs;
    return launch(scatter_kernel<T, kCount, Offset>, count, "index_add", stream, a, walk, inner, Offset(count));
  }
  const int64_t tiles = (packs + kTile - 1) / kTile, blocks = tiles * a.num_targets;
  const int64_t most = a.deterministic ? 1 : (a.num_rows + kLeastWalk - 1) / kLeastWalk;
  const int64_t walks = clamp<int64_t>(kBlocks / blocks, 1, most);
  const int64_t rows = (a.num_rows + walks - 1) / walks;
  launch(own_kernel<T, kCount, Offset>, blocks * walks * kThreads, "index_add", stream, a, walk, Offset(packs),
         Ownership{tiles, rows, walks == 1});
}

template <class T, class Offset>
void add_bins(const IndexAddArgs<T>& a, Stream stream) {
  const int64_t elements = a.slice.num_elements(), count = a.num_rows * elements;
  const int64_t least = max2<int64_t>(4 * a.num_targets * elements, 8 * kThreads);
  const int64_t blocks = clamp<int64_t>(count / least, 1, kBlocks), share = (count + blocks - 1) / blocks;
  launch(bins_kernel<T, Offset>, blocks * kThreads, "index_add", stream, a, SliceWalk<Offset>(a.slice),
         Divider<Offset>(Offset(a.rows_inside ? a.num_rows : elements)), Divider<Offset>(Offset(elements)),
         Offset(count), Offset(share));
}

template <class T, class Offset>
void add(const IndexAddArgs<T>& a, Stream stream) {
  const bool packs = has_whole_packs(a);
  if (!(packs ? owns<T, kPackSize<T>>(a) : owns<T, 1>(a)) && bins_pay(a)) add_bins<T, Offset>(a, stream);
  else if (packs) add_packs<T, kPackSize<T>, Offset>(a, stream);
  else add_packs<T, 1, Offset>(a, stream);
}

}  // namespace

template <class T>
void index_add(const IndexAddArgs<T>& a, Stream stream) {
  const SliceDims& dims = a.slice;
  if (a.num_targets == 0 || a.num_rows * dims.num_elements() == 0) return;
  const int64_t largest = max2(max2(span(dims, dims.dst_stride, a.num_targets, a.dst_row_stride),
                                    span(dims, dims.src_stride, a.num_rows, a.src_row_stride)),
                               a.num_rows * dims.num_elements());
  if (largest < k32Bit) return add<T, uint32_t>(a, stream);
  // Of double that would be 16 GB, too rare to be worth the compiler's time.
  if constexpr (std::is_same_v<T, double>) cuda_plain::index_add(a, stream);
  else add<T, uint64_t>(a, stream);
}

NERF_INSTANTIATE(index_add, IndexAddArgs)
template void index_add(const IndexAddArgs<BFloat16>&, Stream);

}  // namespace nerf::cuda
