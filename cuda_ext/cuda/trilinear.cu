// interpolate_trilinear on CUDA, in float, of values that are float or float16, with results and gradients that are float or
// bfloat16: the kernels are in trilinear_gather.cuh and trilinear_scatter.cuh. They count in 32 bits; grids of more vertices
// than that are left to the plain ones.
#include "../math/channels.h"
#include "../portable/trilinear.h"
#include "float4.cuh"
#include "launch.cuh"
// Behind those.
#include "trilinear_gather.cuh"
#include "trilinear_scatter.cuh"

namespace nerf::cuda {
namespace {

constexpr int kSixteen = 16;  // channels, which have kernels of their own

// body(rows, grid) with the rows of a short grid.
template <class S, class Body>
void with_rows(const TrilinearArgs<S>& a, const Body& body) {
  const auto with = [&](auto rows) { body(rows, ShortGrid(a.vertices, rows)); };
  if (a.table.words) with(a.table.short_sparse());
  else with(DenseRows());
}

template <int kQuads, class S>
void gather_quads(const TrilinearArgs<S>& a, Stream stream) {
  with_rows(a, [&](auto rows, const ShortGrid& grid) {
    const int quads = int(a.channels / 4);
    launch(gather_float4_kernel<kQuads, S, decltype(rows)>, a.num_points * quads, "interpolate_trilinear", stream, a, grid,
           quads, rows);
  });
}

template <class V, int kWidth, class S>
void scatter_runs(const TrilinearArgs<S>& a, int64_t width, Stream stream) {
  const int64_t threads = (a.num_points + kRun - 1) / kRun * 2 * width;
  with_rows(a, [&](auto rows, const ShortGrid& grid) {
    launch(scatter_runs_kernel<V, kWidth, S, decltype(rows)>, threads, "interpolate_trilinear_backward", stream, a,
           grid, int(width), rows);
  });
}

bool has_whole_quads(int64_t channels, const void* data) {
  return channels % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

}  // namespace

template <>
void trilinear(const TrilinearArgs<double>& a, Stream stream) {
  cuda_plain::trilinear(a, stream);
}

template <class S>
void trilinear(const TrilinearArgs<S>& a, Stream stream) {
  const bool numbers = a.channels == 1 && kIsOneOf<S, float>;
  if ((!numbers && !has_whole_quads(a.channels, a.grid)) || !is_short(a)) return cuda_plain::trilinear(a, stream);
  if constexpr (kIsOneOf<S, float>)
    if (numbers)
      return with_rows(a, [&](auto rows, const ShortGrid& grid) {
        launch(gather_numbers_kernel<decltype(rows)>, a.num_points, "interpolate_trilinear", stream, a, grid, rows);
      });
  if (a.channels == kSixteen)
    return with_rows(a, [&](auto rows, const ShortGrid& grid) {
      launch(gather_four_quads_kernel<S, decltype(rows)>, a.num_points * kThreadsOfPoint<S>, "interpolate_trilinear",
             stream, a, grid, rows);
    });
  const auto known = [&](auto channels) { gather_quads<channels.value / 4>(a, stream); };
  with_channels(CommonChannels(), a.channels, known, [&] { gather_quads<0>(a, stream); });
}

template void trilinear(const TrilinearArgs<float>&, Stream);
template void trilinear(const TrilinearArgs<ShortValues>&, Stream);
template void trilinear(const TrilinearArgs<ShortSamples>&, Stream);

template <>
void trilinear_backward(const TrilinearArgs<double>& a, Stream stream) {
  cuda_plain::trilinear_backward(a, stream);
}

// Gradients of coords alone.
template <>
void trilinear_backward(const TrilinearArgs<ShortValues>& a, Stream stream) {
  cuda_plain::trilinear_backward(a, stream);
}

template <class S>
void trilinear_backward(const TrilinearArgs<S>& a, Stream stream) {
  if (a.grad_coords) {
    TrilinearArgs<S> coords_alone = a;
    coords_alone.grad_grid = nullptr;
    cuda_plain::trilinear_backward(coords_alone, stream);
  }
  if (!a.grad_grid || a.channels == 0) return;
  if (!is_short(a)) {
    TrilinearArgs<S> grid_alone = a;
    grid_alone.grad_coords = nullptr;
    return cuda_plain::trilinear_backward(grid_alone, stream);
  }
  if (!has_whole_quads(a.channels, a.grad_grid) || !has_whole_quads(a.channels, a.grad_out))
    return a.channels == 1 ? scatter_runs<float, 1>(a, 1, stream) : scatter_runs<float, 0>(a, a.channels, stream);
  if (a.channels == kSixteen)
    return with_rows(a, [&](auto rows, const ShortGrid& grid) {
      const int64_t threads = (a.num_points + kRun - 1) / kRun * 8;
      launch(scatter_sixteen_kernel<S, decltype(rows)>, threads, "interpolate_trilinear_backward", stream, a, grid,
             rows);
    });
  const auto known = [&](auto channels) { scatter_runs<float4, channels.value / 4>(a, channels.value / 4, stream); };
  with_channels(CommonChannels(), a.channels, known, [&] { scatter_runs<float4, 0>(a, a.channels / 4, stream); });
}

template void trilinear_backward(const TrilinearArgs<float>&, Stream);
template void trilinear_backward(const TrilinearArgs<ShortSamples>&, Stream);

}  // namespace nerf::cuda
