// render_rays on CUDA: one warp per ray. 32 lanes look at 32 lattice points; then the visible ones are taken in turn, and
// the lanes share the eight corners of one sample: lane 4k + q holds the sums of corner k and of every fourth pack of four
// channels from q on. The corners are added up once, at the end of the ray.
#include <type_traits>

#include "march_visible.cuh"
#include "pack.cuh"

namespace nerf::cuda {
namespace {

constexpr int kWide = 4;  // channels in a pack, and packs that the lanes of a corner take at once

// kPacks: packs per row.
template <class T, int kPacks>
__global__ void __launch_bounds__(kThreads) render_rays_kernel(RenderRaysArgs<T> a) {
  const int64_t r = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32, corner = lane / kWide, first_pack = lane % kWide;
  if (r >= a.num_rays) return;
  const LatticeRay<T> ray = a.ray(r);
  constexpr int kRounds = (kPacks + kWide - 1) / kWide;
  Pack<T, kWide> sum[kRounds] = {};
  const Pack<T, kWide>* grid = reinterpret_cast<const Pack<T, kWide>*>(a.values_grid) + first_pack;
  T before = T(0), opacity = T(0), depth = T(0);  // before: optical depth of the visible samples in front
  walk_visible_by_warp(a, ray, lane, [&](const Look<T>& look) {
    unsigned visible = __ballot_sync(kAllLanes, look.visible);
    const T own = look.visible ? look.optical_depth : T(0);
    const T through = sum_up_to(own, lane), below = __shfl_up_sync(kAllLanes, through, 1);
    const T weight = std::exp(-(before + (lane ? below : T(0)))) * opacity_of(own);
    before += __shfl_sync(kAllLanes, through, 31);
    opacity += weight;
    depth += weight * look.t_mid();
    T coord[3];
    ray.position(look.t_mid(), coord);
    const Stencil<T> own_stencil = make_stencil(coord, a.density.vertices);
    while (visible) {
      const int source = __ffs(visible) - 1;
      visible &= visible - 1;
      Stencil<T> s;
      s.row = __shfl_sync(kAllLanes, own_stencil.row, source);
      T corner_weight = __shfl_sync(kAllLanes, weight, source);
      for (int axis = 0; axis < 3; ++axis) {
        s.stride[axis] = own_stencil.stride[axis];  // of the grid, the same everywhere
        const T fraction = __shfl_sync(kAllLanes, own_stencil.weight[axis][1], source);
        corner_weight *= corner >> (2 - axis) & 1 ? fraction : T(1) - fraction;
      }
      const Pack<T, kWide>* row = grid + s.corner_row(corner) * kPacks;
#pragma unroll
      for (int round = 0; round < kRounds; ++round) {
        if (kWide * round + first_pack >= kPacks) break;
        const Pack<T, kWide> values = row[kWide * round];
#pragma unroll
        for (int c = 0; c < kWide; ++c) sum[round].v[c] += corner_weight * values.v[c];
      }
    }
    return true;
  });
  opacity = warp_sum(opacity);
  depth = warp_sum(depth);
  if (lane == 0) a.opacity[r] = opacity, a.depth[r] = depth;
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int c = 0; c < kWide; ++c)
      for (int distance = kWide; distance < 32; distance *= 2)
        sum[round].v[c] += __shfl_xor_sync(kAllLanes, sum[round].v[c], distance);
  for (int round = 0; round < kRounds; ++round)
    if (corner == 0 && kWide * round + first_pack < kPacks)
      reinterpret_cast<Pack<T, kWide>*>(a.values)[r * kPacks + kWide * round + first_pack] = sum[round];
}

template <class T, int kPacks>
void render(const RenderRaysArgs<T>& a, Stream stream) {
  pack_occupancy(a, stream);
  launch(render_rays_kernel<T, kPacks>, 32 * a.num_rays, "render_rays", stream, a);
}

}  // namespace

template <class T>
void render_rays(const RenderRaysArgs<T>& a, Stream stream) {
  const bool aligned = reinterpret_cast<uintptr_t>(a.values_grid) % (kWide * sizeof(T)) == 0 &&
                       reinterpret_cast<uintptr_t>(a.values) % (kWide * sizeof(T)) == 0;
  switch (aligned && a.channels % kWide == 0 ? a.channels / kWide : 0) {
    case 1: return render<T, 1>(a, stream);
    case 2: return render<T, 2>(a, stream);
    case 3: return render<T, 3>(a, stream);
    case 4: return render<T, 4>(a, stream);
    default: return cuda_plain::render_rays(a, stream);
  }
}

NERF_INSTANTIATE(render_rays, RenderRaysArgs)

}  // namespace nerf::cuda
