// march_visible on CUDA: the kernels are in march_visible_lanes.cuh. They count in 32 bits; grids of more cells or vertices than
// that are left to the plain ones.
#include "../portable/march_visible.h"
#include "march_visible.cuh"
#include "march_visible_lanes.cuh"

namespace nerf::cuda {

// Nobody trains in double, and these kernels would take two thirds of the compiler's time.
template <>
void march_visible_count(const MarchVisibleArgs<double>& a, Stream stream) {
  cuda_plain::march_visible_count(a, stream);
}

template <>
void march_visible_fill(const MarchVisibleArgs<double>& a, Stream stream) {
  cuda_plain::march_visible_fill(a, stream);
}

template <>
void march_visible_count(const MarchVisibleArgs<float>& a, Stream stream) {
  if (!is_short(a)) return cuda_plain::march_visible_count(a, stream);
  pack_occupancy(a, stream);
  find_clear(a, stream);
  const auto count = [&](auto rows) {
    const int each = a.contraction == 0 ? kRays : kBentRays;
    launch<32 * kMarchWarps>(count_visible_kernel<float, decltype(rows)>, 32 * ((a.num_rays + each - 1) / each),
                             "march_visible: count", stream, a, rows, each);
  };
  if (a.density.table.words) count(a.density.table.short_sparse());
  else count(DenseRows());
  counts_to_offsets(a, stream);
}

template <>
void march_visible_fill(const MarchVisibleArgs<float>& a, Stream stream) {
  if (!is_short(a) || a.num_rays == 0) return cuda_plain::march_visible_fill(a, stream);
  const auto fill = [&](auto rows) {
    launch<32 * kMarchWarps>(fill_visible_kernel<float, decltype(rows)>, kFilling * a.num_rays, "march_visible: fill",
                             stream, a, rows);
  };
  if (a.density.table.words) fill(a.density.table.short_sparse());
  else fill(DenseRows());
}

}  // namespace nerf::cuda
