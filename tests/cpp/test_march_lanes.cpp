// The kernels of cuda_ext/cuda/march_visible_lanes.cuh on a stand-in for a GPU, against the walk of math/march_visible.h: rays
// of a pixel side by side and such that are far apart, bent ones, words that are clear, rays that see more than is noted,
// batches that end within a warp, rows that no ray has.
#include "emulated_gpu.h"
#include "expect.h"

// Behind the stand-in.
#include "cuda/march_visible_lanes.cuh"

namespace {

using namespace nerf;
using namespace nerf::cuda;

constexpr int64_t kCells[3] = {19, 23, 41};
constexpr int64_t kVertices[3] = {20, 24, 42};
constexpr int kAll = 70;   // rays: the last warp has two
constexpr int kTail = 90;  // rows that no ray has

struct Case {
  const char* name;
  bool of_pixels;  // four rays beside each other, else each goes its own way
  bool sparse;
  float contraction, step, density, min_weight;
};

// Occupied are a ball and a few cells elsewhere; vertices of these have rows.
struct Scene {
  std::vector<char> occupied;
  std::vector<uint64_t> words, table;
  std::vector<char> clear;
  std::vector<float> raw;
};

int64_t cell_number(int64_t x, int64_t y, int64_t z) { return (x * kCells[1] + y) * kCells[2] + z; }

bool near_cell(const Scene& scene, int64_t x, int64_t y, int64_t z) {
  for (int k = 0; k < 8; ++k) {
    const int64_t cx = x - (k >> 2), cy = y - (k >> 1 & 1), cz = z - (k & 1);
    if (cx < 0 || cy < 0 || cz < 0 || cx >= kCells[0] || cy >= kCells[1] || cz >= kCells[2]) continue;
    if (scene.occupied[cell_number(cx, cy, cz)]) return true;
  }
  return false;
}

Scene scene_of(const Case& c) {
  Scene scene;
  for (int64_t x = 0; x < kCells[0]; ++x)
    for (int64_t y = 0; y < kCells[1]; ++y)
      for (int64_t z = 0; z < kCells[2]; ++z) {
        const double dx = x - 9.0, dy = y - 12.0, dz = z - 15.0;
        scene.occupied.push_back(dx * dx + dy * dy + dz * dz < 30 || number() < 0.001);
      }
  OccupancyWords all = {nullptr, {kCells[0], kCells[1], kCells[2]}};
  const auto* cells = reinterpret_cast<const bool*>(scene.occupied.data());
  for (int64_t x = 0; x < all.size(0); ++x)
    for (int64_t y = 0; y < all.size(1); ++y)
      for (int64_t z = 0; z < all.size(2); ++z) scene.words.push_back(pack_word(cells, kCells, x, y, z));
  const auto word = [&](int64_t x, int64_t y, int64_t z) {
    const bool inside = x >= 0 && y >= 0 && z >= 0 && x < all.size(0) && y < all.size(1) && z < all.size(2);
    return inside ? scene.words[(x * all.size(1) + y) * all.size(2) + z] : 0;
  };
  for (int64_t x = 0; x < all.size(0); ++x)
    for (int64_t y = 0; y < all.size(1); ++y)
      for (int64_t z = 0; z < all.size(2); ++z) {
        uint64_t any = 0;
        for (int k = 0; k < 27; ++k) any |= word(x + k / 9 - 1, y + k / 3 % 3 - 1, z + k % 3 - 1);
        scene.clear.push_back(any == 0);
      }
  for (int64_t x = 0; x < kVertices[0]; ++x)
    for (int64_t y = 0; y < kVertices[1]; ++y)
      for (int64_t first = 0; first < kVertices[2]; first += 32) {
        uint64_t bits = uint64_t(scene.raw.size()) << 32;
        for (int64_t z = first; z < min2<int64_t>(first + 32, kVertices[2]); ++z) {
          if (c.sparse && !near_cell(scene, x, y, z)) continue;
          bits |= uint64_t(1) << (z - first);
          scene.raw.push_back(float(number(-4, 2)));
        }
        scene.table.push_back(bits);
      }
  return scene;
}

// From around the grid, or in a contracted one from within, to a place in it. A few miss it, or are none at all.
void aim(const Case& c, std::vector<float>& origins, std::vector<float>& directions) {
  double from[3], to[3];
  for (int r = 0; r < kAll; ++r)
    for (int axis = 0; axis < 3; ++axis) {
      const double size = double(kCells[axis]);
      if (!c.of_pixels || r % 4 == 0) {
        from[axis] = c.contraction != 0 ? number(0.3, 0.7) * size : number() < 0.5 ? -8 : number(0.9, 1.5) * size;
        to[axis] = number(0.2, 0.8) * size;
      }
      const double beside = c.of_pixels ? 0.2 * number() : 0;
      origins.push_back(float(from[axis]));
      directions.push_back(float((to[axis] + beside - from[axis]) / 30));
      if (r % 19 == 7 && !c.of_pixels) directions.back() = axis == 0 ? NAN : 0;
      if (r % 19 == 9 && !c.of_pixels) directions.back() = -directions.back();
    }
}

struct Rows {
  std::vector<int64_t> offsets, ray_indices;
  std::vector<float> t_starts, t_ends, coords;
  explicit Rows(size_t count)
      : offsets(kAll + 1), ray_indices(count, -7), t_starts(count, -7), t_ends(count, -7), coords(3 * count, -7) {}
  void receive(MarchVisibleArgs<float>& a) {
    a.ray_offsets = offsets.data(), a.ray_indices = ray_indices.data();
    a.t_starts = t_starts.data(), a.t_ends = t_ends.data(), a.coords = coords.data();
  }
  void add_up() {
    for (int r = 0; r < kAll; ++r) offsets[r + 1] += offsets[r];
  }
};

template <class Table>
void fill_by_loops(const MarchVisibleArgs<float>& a, const Table& table) {
  clear_rows_of_no_ray(a, 0, 1);
  for (int64_t r = 0; r < kAll; ++r) {
    const LatticeRay<float> ray = a.ray(r);
    int64_t i = a.ray_offsets[r];
    walk_visible(a, table, ray, [&](float k, float) { a.write(i++, r, ray, k); });
  }
}

template <class Table, class ShortTable>
void march(const Case& c, MarchVisibleArgs<float>& a, const Table& table, const ShortTable& short_table) {
  std::vector<int64_t> counts(kAll + 1);
  for (int64_t r = 0; r < kAll; ++r)
    walk_visible(a, table, a.ray(r), [&](float, float) { ++counts[r + 1]; });
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  Rows wanted(size_t(total + kTail)), found(size_t(total + kTail));
  a.capacity = total + kTail;
  wanted.offsets = counts;
  wanted.add_up(), wanted.receive(a), fill_by_loops(a, table);

  found.receive(a);
  const int each = a.contraction == 0 ? kRays : kBentRays;
  const auto launch = [&](int64_t threads, const auto& kernel) {
    const int of_block = 32 * kMarchWarps, blocks = int((threads + of_block - 1) / of_block);
    gridDim.x = blocks;
    emulated::launch({blocks, 1}, of_block, 0, kernel);
  };
  launch(32 * ((kAll + each - 1) / each), [&] { count_visible_kernel(a, short_table, each); });
  for (int r = 0; r < kAll; ++r) expect_near(double(found.offsets[r + 1]), double(counts[r + 1]), 0, c.name);
  if (failures) return;
  found.add_up();
  launch(kFilling * kAll, [&] { fill_visible_kernel(a, short_table); });
  expect(found.ray_indices == wanted.ray_indices, "rays of the samples");
  expect(found.t_starts == wanted.t_starts && found.t_ends == wanted.t_ends, "intervals of the samples");
  expect(found.coords == wanted.coords, "midpoints of the samples");
  expect(total > 20, "rays that see something");
}

void visible(const Case& c) {
  Scene scene = scene_of(c);
  std::vector<float> origins, directions, jitter;
  aim(c, origins, directions);
  for (int i = 0; i < kAll; ++i) jitter.push_back(float(number(-0.5, 0.5)));
  const float near = 0, far = c.contraction != 0 ? 1e4f : 1e9f;
  std::vector<uint64_t> looks(kAll * kLooks);
  MarchVisibleArgs<float> a = {};
  a.origins = origins.data(), a.directions = directions.data(), a.jitter = jitter.data();
  a.rays_of_jitter = c.of_pixels ? 4 : 1;
  a.near = &near, a.far = &far, a.near_stride = a.far_stride = 0;
  a.step_size = c.step, a.contraction = c.contraction;
  std::copy(kCells, kCells + 3, a.cells);
  a.words = scene.words.data(), a.has_words = true;
  a.clear = reinterpret_cast<bool*>(scene.clear.data()), a.has_clear = true;
  a.num_rays = kAll;
  a.density.raw = scene.raw.data(), a.density.shift = 0, a.density.scale = c.density;
  std::copy(kVertices, kVertices + 3, a.density.vertices);
  a.min_transmittance = 1e-4f, a.min_weight = c.min_weight;
  a.looks = looks.data();
  if (c.sparse) {
    a.density.table = {scene.table.data(), int64_t(scene.raw.size())};
    march(c, a, a.density.table.sparse(), a.density.table.short_sparse());
  } else {
    march(c, a, DenseRows(), DenseRows());
  }
}

}  // namespace

int main() {
  const Case cases[] = {{"pixels", true, false, 0, 0.05f, 1, 0.002f},
                        {"pixels, sparse", true, true, 0, 0.05f, 1, 0.002f},
                        {"rays", false, false, 0, 0.05f, 1, 0.002f},
                        {"rays, sparse", false, true, 0, 0.05f, 1, 0.002f},
                        {"bent rays", false, false, 1, 0.05f, 1, 0.002f},
                        {"bent rays, sparse", false, true, 1, 0.05f, 1, 0.002f},
                        {"long steps of pixels", true, false, 0, 1.2f, 1, 0.002f},
                        {"long steps", false, true, 0, 2.1f, 1, 0.002f},
                        {"long steps of bent rays", false, false, 1, 8.0f, 1, 0.002f},
                        {"fog of pixels", true, true, 0, 0.004f, 0.01f, 0},
                        {"fog", false, true, 0, 0.004f, 0.01f, 0}};
  for (const Case& c : cases) visible(c);
  return failures ? 1 : 0;
}
