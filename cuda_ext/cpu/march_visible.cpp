// march_visible on the CPU: one walk, since looking at density costs most; what it finds waits until the offsets are known.
#include "../portable/march_visible.h"

namespace nerf::cpu {

constexpr int64_t kBlock = 64;  // rays

template <class T, class Rows>
void find_visible(const MarchVisibleArgs<T>& a, const Rows& rows) {
  a.found->resize((a.num_rays + kBlock - 1) / kBlock);
  parallel_for(int64_t(a.found->size()), 1, [&](int64_t block) {
    std::vector<T>& found = (*a.found)[block];
    for (int64_t r = kBlock * block; r < min2(kBlock * (block + 1), a.num_rays); ++r) {
      const size_t before = found.size();
      walk_visible(a, rows, a.ray(r), [&](T k, T) { found.push_back(k); });
      a.ray_offsets[r + 1] = int64_t(found.size() - before);
    }
  });
}

template <class T>
void march_visible_count(const MarchVisibleArgs<T>& a, Stream stream) {
  check_lattices(a, stream);
  pack_occupancy(a, stream);
  if (a.density.table.words) find_visible(a, a.density.table.sparse());
  else find_visible(a, DenseRows());
  counts_to_offsets(a, stream);
}

template <class T>
void march_visible_fill(const MarchVisibleArgs<T>& a, Stream) {
  parallel_for(int64_t(a.found->size()), 1, [&](int64_t block) {
    const T* found = (*a.found)[block].data();
    for (int64_t r = kBlock * block; r < min2(kBlock * (block + 1), a.num_rays); ++r) {
      const LatticeRay<T> ray = a.ray(r);
      // A ray that did not fit has no place, and none after it has one.
      for (int64_t i = a.ray_offsets[r]; i < a.ray_offsets[r + 1]; ++i) a.write(i, r, ray, *found++);
    }
  });
}

NERF_INSTANTIATE(march_visible_count, MarchVisibleArgs)
NERF_INSTANTIATE(march_visible_fill, MarchVisibleArgs)

}  // namespace nerf::cpu
