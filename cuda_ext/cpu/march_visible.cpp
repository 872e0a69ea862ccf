// march_visible on the CPU: one walk, since looking at density costs most; what it finds waits until the offsets are known.
//
// In a dense grid of float32 the walk gathers eight lattice points in occupied cells before it looks at their density, in
// vectors. Where light ends among them, it has looked a few points too far.
#include "../portable/march_visible.h"

#include <cmath>
#include <type_traits>

namespace nerf::cpu {
namespace {

constexpr int64_t kBlock = 64;  // rays
constexpr int kLanes = 8;       // lattice points that are looked at together

// log(1 + exp(x)) = max(x, 0) + 2 artanh(z / (2 + z)) with z = exp(-|x|); eight terms of artanh's series are exact to the
// last bit.
inline float softplus_in_vectors(float x) {
  const Exponential e = exponential(-std::abs(x));
  const float z = e.power + e.power * e.rest, s = z / (2.0f + z), square = s * s;
  float tail = 1.0f / 15;
  for (const float term : {1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3}) tail = tail * square + term;
  return (x > 0.0f ? x : 0.0f) + 2.0f * (s + s * square * tail);
}

// Raw density at kLanes points of a dense grid.
void raw_density(const DensityGrid<float>& grid, const float points[3][kLanes], float raw[kLanes]) {
  int32_t row[kLanes] = {}, stride[3];
  float weight[3][2][kLanes];
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    const int32_t vertices = int32_t(grid.vertices[axis]), cells = max2(vertices - 1, 1);
    for (int j = 0; j < kLanes; ++j) {
      const float x = clamp(points[axis][j], 0.0f, float(vertices - 1));
      const int32_t cell = nearest_short_cell(x, cells);
      weight[axis][1][j] = x - float(cell);
      weight[axis][0][j] = 1.0f - weight[axis][1][j];
      row[j] = row[j] * vertices + cell;
    }
    stride[axis] = vertices > 1;
  }
  stride[1] *= int32_t(grid.vertices[2]);
  stride[0] *= int32_t(grid.vertices[1] * grid.vertices[2]);
  for (int j = 0; j < kLanes; ++j) raw[j] = 0.0f;
  NERF_UNROLL for (int k = 0; k < 8; ++k) {
    const int x = k >> 2 & 1, y = k >> 1 & 1, z = k & 1;
    const float* corner = grid.raw + x * stride[0] + y * stride[1] + z * stride[2];
    float value[kLanes];
    NERF_UNROLL for (int j = 0; j < kLanes; ++j) value[j] = corner[row[j]];
    for (int j = 0; j < kLanes; ++j) raw[j] += weight[0][x][j] * weight[1][y][j] * weight[2][z][j] * value[j];
  }
}

// Calls emit(k) for the visible samples of a ray as walk_visible does.
template <class Emit>
void walk_in_vectors(const MarchVisibleArgs<float>& a, const LatticeRay<float>& ray, const Emit& emit) {
  float ks[kLanes] = {}, transmittance = 1.0f;
  int count = 0;
  const auto look = [&] {
    float points[3][kLanes], raw[kLanes], depths[kLanes], alphas[kLanes];
    if (ray.contraction == 0.0f) {  // as ray.position does it
      for (int j = 0; j < kLanes; ++j)
        NERF_UNROLL for (int axis = 0; axis < 3; ++axis)
          points[axis][j] = ray.origin[axis] + ray.t(ks[j] + 0.5f) * ray.direction[axis];
    } else {
      for (int j = 0; j < kLanes; ++j) {
        float point[3];
        ray.position(ray.t(ks[j] + 0.5f), point);
        for (int axis = 0; axis < 3; ++axis) points[axis][j] = point[axis];
      }
    }
    raw_density(a.density, points, raw);
    for (int j = 0; j < kLanes; ++j) {
      depths[j] = softplus_in_vectors(raw[j] + a.density.shift) * a.density.scale * (ray.t(ks[j] + 1.0f) - ray.t(ks[j]));
      alphas[j] = opacity_of(depths[j]);
    }
    for (int j = 0; j < count; ++j) {
      const float weight = transmittance < a.min_transmittance ? 0.0f : transmittance * alphas[j];
      if (weight >= a.min_weight) emit(ks[j]);
      transmittance *= 1.0f - alphas[j];
      if (!a.worth_going_on(transmittance)) return false;
    }
    count = 0;
    return true;
  };
  bool goes_on = true;
  walk_ray(ray, a.occupancy(), 0.0f, INFINITY, INT64_MAX, [&](float k) {
    ks[count++] = k;
    if (count == kLanes) goes_on = look();
    return goes_on;
  });
  if (goes_on && count > 0) look();
}

template <class T, class Rows>
void find_visible(const MarchVisibleArgs<T>& a, const Rows& rows) {
  constexpr bool kVectors = std::is_same_v<T, float> && !Rows::kSparse;
  const int64_t* n = a.density.vertices;
  const bool is_short = n[0] <= kShortCells && n[1] <= kShortCells && n[2] <= kShortCells &&
                        n[0] * n[1] <= INT32_MAX && n[0] * n[1] * n[2] <= INT32_MAX;
  a.found->resize((a.num_rays + kBlock - 1) / kBlock);
  parallel_for(int64_t(a.found->size()), 1, [&](int64_t block) {
    std::vector<T>& found = (*a.found)[block];
    for (int64_t r = kBlock * block; r < min2(kBlock * (block + 1), a.num_rays); ++r) {
      const size_t before = found.size();
      const auto emit = [&](T k, T = T(0)) { found.push_back(k); };
      if constexpr (kVectors) {
        if (is_short) walk_in_vectors(a, a.ray(r), emit);
        else walk_visible(a, rows, a.ray(r), emit);
      } else {
        walk_visible(a, rows, a.ray(r), emit);
      }
      a.ray_offsets[r + 1] = int64_t(found.size() - before);
    }
  });
}

}  // namespace

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
