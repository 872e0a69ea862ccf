// What the fast walks of march_visible.cu and render_rays.cu ask before they begin, and the walk itself.
#pragma once

#include "march_offsets.cuh"
#include "march_walk.cuh"

namespace nerf::cuda {

// Whether walk_visible_by_warp can count the cells, the words and the vertices.
template <class T>
bool is_short(const MarchVisibleArgs<T>& a) {
  const int64_t* n = a.density.vertices;
  const int64_t pitch = a.density.table.words ? a.density.table.sparse().pitch(n[2]) : n[2];
  return n[0] <= kShortCells && n[1] <= kShortCells && n[2] <= kShortCells && n[0] * n[1] * pitch <= INT32_MAX &&
         a.density.table.count <= INT32_MAX;
}

// Fills a.clear: whether an occupancy word and the 26 around it are empty.
template <class T>
void find_clear(const MarchVisibleArgs<T>& a, Stream stream) {
  if (a.has_clear) return;
  for_each(a.occupancy().count(), "march_visible: clear", stream, [a] __device__(int64_t i) {
    const OccupancyWords occupancy = a.occupancy();
    const Place column = place(i, occupancy.size(2)), at = place(column.row, occupancy.size(1));
    const int middle[3] = {int(at.row), int(at.column), int(column.column)};
    int low[3], high[3], size[3];
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
      size[axis] = int(occupancy.size(axis));
      low[axis] = max2(middle[axis] - 1, 0);
      high[axis] = min2(middle[axis] + 1, size[axis] - 1);
    }
    uint64_t any = 0;
    for (int x = low[0]; x <= high[0]; ++x)
      for (int y = low[1]; y <= high[1]; ++y)
        for (int z = low[2]; z <= high[2]; ++z) any |= occupancy.words[(x * size[1] + y) * size[2] + z];
    a.clear[i] = any == 0;
  });
}

}  // namespace nerf::cuda
