// render_rays on CUDA: one warp per pixel, whose rays it walks side by side (march_visible.cuh). The visible samples are taken
// in the order of their lanes, in which those of one cell mostly follow each other, and the lanes share the corners of a
// cell: lane 4k + q holds the sums of corner k and of every fourth pack of four channels from q on. The weights that the
// samples of a cell give a corner are added up before its row is read, the corners once, at the end of the pixel.
#include <type_traits>

#include "march_visible.cuh"
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr int kWide = 4;  // channels in a pack, and packs that the lanes of a corner take at once

// kPacks: packs per row; S: rays per pixel.
template <class T, int kPacks, int S>
__global__ void __launch_bounds__(kThreads) render_rays_kernel(RenderRaysArgs<T> a) {
  const int64_t p = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32, corner = lane / kWide, first_pack = lane % kWide;
  if (p * S >= a.num_rays) return;
  const int64_t r = p * S + lane % S;
  const LatticeRay<T> ray = a.ray(r);
  constexpr int kRounds = (kPacks + kWide - 1) / kWide;
  Pack<T, kWide> sum[kRounds] = {};
  const int64_t* vertices = a.density.vertices;
  int64_t corner_row = 0;  // from the lowest corner of a cell to this lane's
  for (int axis = 0; axis < 3; ++axis)
    corner_row = corner_row * vertices[axis] + (corner >> (2 - axis) & 1 && vertices[axis] > 1);
  const Pack<T, kWide>* grid =
      reinterpret_cast<const Pack<T, kWide>*>(a.values_grid) + corner_row * kPacks + first_pack;
  T before = T(0), opacity = T(0), depth = T(0);  // before: optical depth of the visible samples in front
  const auto add_cell = [&](int row, T corner_weight) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (kWide * round + first_pack >= kPacks) break;
      const Pack<T, kWide> values = grid[int64_t(row) * kPacks + kWide * round];
#pragma unroll
      for (int c = 0; c < kWide; ++c) sum[round].v[c] += corner_weight * values.v[c];
    }
  };
  walk_visible_by_warp<S>(a, ray, lane, [&](const Look<T>& look) {
    unsigned visible = __ballot_sync(kAllLanes, look.visible);
    const T thickness = look.visible ? look.optical_depth : T(0), alpha = look.visible ? look.alpha : T(0);
    const T through = sum_up_to<S>(thickness, lane), below = __shfl_up_sync(kAllLanes, through, S);
    const T own_weight = std::exp(-(before + (lane < S ? T(0) : below))) * alpha;
    before += __shfl_sync(kAllLanes, through, 32 - S + lane % S);
    opacity += own_weight;
    depth += own_weight * ray.t(look.k + T(0.5));
    const int own_row = int(look.stencil.row);
    int cell = -1;     // its lowest row
    T of_cell = T(0);  // what this lane's corner weighs in the samples of the cell
    while (visible) {
      const int source = __ffs(visible) - 1;
      visible &= visible - 1;
      const int row = __shfl_sync(kAllLanes, own_row, source);
      if (row != cell) {
        if (cell >= 0) add_cell(cell, of_cell);
        of_cell = T(0);
        cell = row;
      }
      T weight = __shfl_sync(kAllLanes, own_weight, source);
      for (int axis = 0; axis < 3; ++axis) {
        const T fraction = __shfl_sync(kAllLanes, look.stencil.weight[axis][1], source);
        weight *= corner >> (2 - axis) & 1 ? fraction : T(1) - fraction;
      }
      of_cell += weight;
    }
    if (cell >= 0) add_cell(cell, of_cell);
    return true;
  });
  opacity = warp_sum<S>(opacity);
  depth = warp_sum<S>(depth);
  if (lane < S) a.opacity[r] = opacity, a.depth[r] = depth;
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int c = 0; c < kWide; ++c) {
      sum[round].v[c] *= T(1) / T(S);
      for (int distance = kWide; distance < 32; distance *= 2)
        sum[round].v[c] += __shfl_xor_sync(kAllLanes, sum[round].v[c], distance);
    }
  for (int round = 0; round < kRounds; ++round)
    if (corner == 0 && kWide * round + first_pack < kPacks)
      reinterpret_cast<Pack<T, kWide>*>(a.values)[p * kPacks + kWide * round + first_pack] = sum[round];
}

template <class T, int kPacks>
void render(const RenderRaysArgs<T>& a, Stream stream) {
  pack_occupancy(a, stream);
  const int64_t threads = 32 * (a.num_rays / a.rays_per_pixel);
  if constexpr (std::is_same_v<T, float>) {
    if (a.rays_per_pixel == 2) return launch(render_rays_kernel<T, kPacks, 2>, threads, "render_rays", stream, a);
    if (a.rays_per_pixel == 4) return launch(render_rays_kernel<T, kPacks, 4>, threads, "render_rays", stream, a);
  }
  return launch(render_rays_kernel<T, kPacks, 1>, threads, "render_rays", stream, a);
}

}  // namespace

template <class T>
void render_rays(const RenderRaysArgs<T>& a, Stream stream) {
  const bool aligned = reinterpret_cast<uintptr_t>(a.values_grid) % (kWide * sizeof(T)) == 0 &&
                       reinterpret_cast<uintptr_t>(a.values) % (kWide * sizeof(T)) == 0;
  const int64_t* n = a.density.vertices;
  const bool short_rows = n[0] * n[1] * n[2] <= INT32_MAX;
  // Several rays are for pictures, which are float; in double they would be a third of the compiler's time.
  const bool made = a.rays_per_pixel == 1 || std::is_same_v<T, float>;
  switch (aligned && short_rows && made && a.channels % kWide == 0 ? a.channels / kWide : 0) {
    case 1: return render<T, 1>(a, stream);
    case 2: return render<T, 2>(a, stream);
    case 3: return render<T, 3>(a, stream);
    case 4: return render<T, 4>(a, stream);
    default: return cuda_plain::render_rays(a, stream);
  }
}

NERF_INSTANTIATE(render_rays, RenderRaysArgs)

}  // namespace nerf::cuda
