// render_rays on CUDA: a warp prepares the rays of kPixels pixels all at once; then it walks those of one pixel after the
// other, side by side (march_walk.cuh). The lanes share the corners of a cell: lane 4k + q holds the sums of corner k
// and of every fourth pack of four channels from q on. What the visible samples of a cell give a corner is added up before
// its row is read, the corners at the end of the pixel.
#include "../portable/render_rays.h"
#include "march_visible.cuh"
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr int kWide = 4;    // channels in a pack, and packs that the lanes of a corner take at once
constexpr int kPixels = 4;  // of a warp
// Pixels differ in what they take, and a block ends with its slowest warp: small blocks, as many as 64 registers allow.
constexpr int kWarps = 2, kBlocks = 16;

// What a pixel composites from its visible samples: this lane's corner and channels of it, kRounds packs of them.
template <class S, int kRounds, class Rows>
struct Composited {
  using T = Wide<S>;
  using V = Value<S>;
  using Row = Pack<T, kWide>;
  using Stored = Pack<V, kWide>;  // as it is read: to widen is to wait

  const V* grid;    // of this lane's channels; if it is dense, of its corner, were the lowest corner vertex 0
  Rows rows;
  int corner_vertex;  // this lane's corner, were the lowest one vertex 0
  int first_pack, packs;
  Row sum[kRounds] = {};

  __device__ Composited(const RenderRaysArgs<S>& a, const Rows& where, int lane)
      : rows(where), first_pack(lane % kWide), packs(int(a.channels / kWide)) {
    const int corner = lane / kWide;
    const int64_t* n = a.density.vertices;
    const int64_t vertex = ((corner >> 2) * n[1] + (corner >> 1 & 1)) * rows.pitch(n[2]) + (corner & 1);
    corner_vertex = int(vertex);
    grid = a.values_grid + kWide * ((Rows::kSparse ? 0 : vertex * packs) + first_pack);
  }

  // The values at this lane's corner of the cell whose lowest corner is that vertex.
  __device__ void read(int vertex, Stored values[kRounds]) const {
    const int row = Rows::kSparse ? rows.row(vertex + corner_vertex) : vertex;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (Rows::kSparse) values[round] = Stored{};
      if ((!Rows::kSparse || row >= 0) && kWide * round + first_pack < packs)
        values[round] = load<kWide>(grid + kWide * (int64_t(row) * packs + kWide * round));
    }
  }

  __device__ void add(T weight, const Stored values[kRounds]) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int c = 0; c < kWide; ++c) sum[round].v[c] = fma(weight, widen(values[round].v[c]), sum[round].v[c]);
  }

  // The corners' sums together, times share, to the pixel's values.
  __device__ void write(T share, int lane, T* values) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int c = 0; c < kWide; ++c) {
        sum[round].v[c] *= share;
        for (int distance = kWide; distance < 32; distance *= 2)
          sum[round].v[c] += __shfl_xor_sync(kAllLanes, sum[round].v[c], distance);
      }
      if (lane < kWide && kWide * round + first_pack < packs)
        reinterpret_cast<Row*>(values)[kWide * round + first_pack] = sum[round];
    }
  }
};

// What a sample's cell gives each of its corners: [corner][lane], padded so that corners do not share a bank.
template <class T>
using SharedWeights = T[8][33];

// kRounds: as in Composited; kOfPixel: rays per pixel.
template <class S, int kRounds, int kOfPixel, class Rows, class T = Wide<S>>
__device__ void render_pixel_by_warp(const RenderRaysArgs<S>& a, const Rows& rows, const PixelRay<T>& of_pixel,
                                     int64_t p, int lane, SharedWeights<T>& weights) {
  const LatticeRay<T>& ray = of_pixel.ray;
  using Stored = typename Composited<S, kRounds, Rows>::Stored;
  Composited<S, kRounds, Rows> composited(a, rows, lane);
  T before = T(0), opacity = T(0), depth = T(0);  // before: optical depth of the visible samples in front
  walk_visible_by_warp<kOfPixel>(a, rows, of_pixel, lane, [&](const Look<T>& look) {
    const unsigned visible = __ballot_sync(kAllLanes, look.visible);
    if (visible == 0) return true;
    const T thickness = look.visible ? look.optical_depth : T(0), alpha = look.visible ? look.alpha : T(0);
    const T through = sum_up_to<kOfPixel>(thickness, lane), below = __shfl_up_sync(kAllLanes, through, kOfPixel);
    const T own_weight = std::exp(-(before + (lane < kOfPixel ? T(0) : below))) * alpha;
    before += __shfl_sync(kAllLanes, through, 32 - kOfPixel + lane % kOfPixel);
    opacity += own_weight;
    depth += own_weight * ray.t(look.k + T(0.5));
    const int own_row = look.stencil.row;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 8; ++k) weights[k][lane] = own_weight * look.stencil.corner_weight(k);
    __syncwarp();
    const unsigned in_cell = __match_any_sync(kAllLanes, look.visible ? own_row : -1);  // the lanes in this one's cell
    unsigned cells = __ballot_sync(kAllLanes, look.visible && lane == __ffs(in_cell) - 1);  // by their first lanes
    int first = __ffs(cells) - 1;
    Stored values[kRounds];
    composited.read(__shfl_sync(kAllLanes, own_row, first), values);
    while (true) {  // the next cell is on its way while this one is added
      unsigned lanes = __shfl_sync(kAllLanes, in_cell, first);
      cells &= cells - 1;
      Stored ahead[kRounds];
      if (cells) {
        first = __ffs(cells) - 1;
        composited.read(__shfl_sync(kAllLanes, own_row, first), ahead);
      }
      T of_cell = T(0);  // what this lane's corner weighs in the cell's samples
      for (; lanes; lanes &= lanes - 1) of_cell += weights[lane / kWide][__ffs(lanes) - 1];
      composited.add(of_cell, values);
      if (!cells) return true;
#pragma unroll
      for (int round = 0; round < kRounds; ++round) values[round] = ahead[round];
    }
  });
  opacity = warp_sum<kOfPixel>(opacity);
  depth = warp_sum<kOfPixel>(depth);
  if (lane < kOfPixel) a.opacity[p * kOfPixel + lane] = opacity, a.depth[p * kOfPixel + lane] = depth;
  composited.write(T(1) / T(kOfPixel), lane, a.values + p * composited.packs * kWide);
}

template <class S, int kRounds, int kOfPixel, class Rows>
__global__ void __launch_bounds__(32 * kWarps, kBlocks) render_rays_kernel(RenderRaysArgs<S> a, Rows rows) {
  using T = Wide<S>;
  __shared__ PixelRay<T> rays_of_warps[kWarps][kPixels * kOfPixel];
  __shared__ SharedWeights<T> weights_of_warps[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = (int64_t(blockIdx.x) * kWarps + warp) * kPixels, num_pixels = a.num_rays / kOfPixel;
  if (first >= num_pixels) return;
  auto& rays = rays_of_warps[warp];
  const int64_t ray = min2(first * kOfPixel + lane, a.num_rays - kOfPixel + lane % kOfPixel);
  const PixelRay<T> own = pixel_ray<kOfPixel>(a.ray(ray));
  if (lane < kPixels * kOfPixel) rays[lane] = own;
  __syncwarp();
  for (int i = 0; i < kPixels && first + i < num_pixels; ++i)
    render_pixel_by_warp<S, kRounds, kOfPixel>(a, rows, rays[kOfPixel * i + lane % kOfPixel], first + i, lane,
                                              weights_of_warps[warp]);
}

template <int kRounds, int kOfPixel, class S>
void render_pixels(const RenderRaysArgs<S>& a, Stream stream) {
  const int64_t pixels = a.num_rays / kOfPixel;
  const auto render = [&](auto rows) {
    launch<32 * kWarps>(render_rays_kernel<S, kRounds, kOfPixel, decltype(rows)>, 32 * ((pixels + kPixels - 1) / kPixels),
                        "render_rays", stream, a, rows);
  };
  if (a.density.table.words) render(a.density.table.short_sparse());
  else render(DenseRows());
}

template <int kRounds, class S>
void render(const RenderRaysArgs<S>& a, Stream stream) {
  pack_occupancy(a, stream);
  find_clear(a, stream);
  if (a.rays_per_pixel == 2) return render_pixels<kRounds, 2>(a, stream);
  if (a.rays_per_pixel == 4) return render_pixels<kRounds, 4>(a, stream);
  return render_pixels<kRounds, 1>(a, stream);
}

}  // namespace

// Pictures are float; in double these kernels would take half of the compiler's time.
template <>
void render_rays(const RenderRaysArgs<double>& a, Stream stream) {
  cuda_plain::render_rays(a, stream);
}

template <class S>
void render_rays(const RenderRaysArgs<S>& a, Stream stream) {
  const bool aligned = is_pack_aligned(a.values_grid) && is_pack_aligned(a.values);
  const int64_t packs = a.channels % kWide ? 0 : a.channels / kWide;
  if (!aligned || !is_short(a) || packs == 0 || packs > 2 * kWide) return cuda_plain::render_rays(a, stream);
  if (packs <= kWide) render<1>(a, stream);
  else render<2>(a, stream);
}

template void render_rays(const RenderRaysArgs<float>&, Stream);
template void render_rays(const RenderRaysArgs<ShortValues>&, Stream);

}  // namespace nerf::cuda
