// The kernels of cuda_ext/cuda/trilinear_gather.cuh and trilinear_scatter.cuh on a stand-in for a GPU, against loops
// over the stencils of math/trilinear.h: what a lane learns from another, cells that change, rows that are missing,
// runs that end early, points that are nowhere.
#include "emulated_gpu.h"
#include "expect.h"

namespace nerf::cuda {

// For launch.cuh and float4.cuh.
constexpr int kThreads = 256;
inline int additions = 0;
inline void add_float4(float4* target, float4 value) {
  ++additions;
  target->x += value.x, target->y += value.y, target->z += value.z, target->w += value.w;
}
struct ShortFour { BFloat16 v[4]; };
inline uint2 round_four(float4 v) { return {round_pair(v.x, v.y), round_pair(v.z, v.w)}; }
inline void add_short(BFloat16* target, float value) { add_to(*target, widen(narrow<BFloat16>(value))); }
inline void add_short(ShortFour* target, float4 value) {
  add_short(target->v, value.x), add_short(target->v + 1, value.y);
  add_short(target->v + 2, value.z), add_short(target->v + 3, value.w);
}
inline void add_short(void* target, float4 low, float4 high) {
  add_short(static_cast<ShortFour*>(target), low), add_short(static_cast<ShortFour*>(target) + 1, high);
}

}  // namespace nerf::cuda

// Behind the stand-in.
#include "cuda/trilinear_gather.cuh"
#include "cuda/trilinear_scatter.cuh"

namespace {

using namespace nerf;
using namespace nerf::cuda;

struct Case {
  int64_t vertices[3];
  bool sparse;
  int points;
};

std::vector<float> drawn(size_t count) {
  std::vector<float> made(count);
  for (float& x : made) x = float(number(-1, 1));
  return made;
}

// Points along rays that begin and end outside of the grid; a few on vertices, and a few that are NaN.
std::vector<float> points_of_rays(const Case& c) {
  std::vector<float> coords(3 * c.points);
  float at[3] = {}, step[3] = {};
  for (int n = 0; n < c.points; ++n)
    for (int axis = 0; axis < 3; ++axis) {
      const double size = double(c.vertices[axis]);
      if (n % 37 == 0) at[axis] = float(number(-1, size)), step[axis] = float(number(-0.5, 0.5));
      at[axis] += step[axis];
      coords[3 * n + axis] = n % 11 == 5 ? std::round(at[axis]) : at[axis];
      if (n % 53 == 17 + axis) coords[3 * n + axis] = NAN;
    }
  return coords;
}

// Of every vertex one in four is missing, and the last two rows are, whatever the table says.
RowTable table_of(const Case& c, std::vector<uint64_t>& words) {
  const int64_t words_of_line = (c.vertices[2] + 31) / 32;
  int64_t rows = 0;
  for (int64_t line = 0; line < c.vertices[0] * c.vertices[1]; ++line)
    for (int64_t word = 0; word < words_of_line; ++word) {
      const int64_t first = rows;
      uint64_t bits = 0;
      for (int64_t z = 32 * word; z < min2(32 * word + 32, c.vertices[2]); ++z)
        if (number() < 0.75) bits |= uint64_t(1) << (z - 32 * word), ++rows;
      words.push_back(bits | uint64_t(first) << 32);
    }
  return {words.data(), max2<int64_t>(rows - 2, 0)};
}

void expect_same(float found, double wanted, double tolerance, const char* what) {
  if (std::isnan(wanted)) expect(std::isnan(found), what);
  else expect_near(found, wanted, tolerance, what);
}

struct Job {
  TrilinearArgs<float> a;
  ShortGrid grid;
};

template <class S, class Rows, class LongRows>
void gather(const TrilinearArgs<S>& a, const ShortGrid& grid, const Rows& rows, const LongRows& long_rows) {
  const auto* out = a.out;
  const int quads = int(a.channels / 4), of_point = quads == 4 ? kThreadsOfPoint<S> : quads;
  const int blocks = int((a.num_points * of_point + kThreads - 1) / kThreads);
  emulated::launch({blocks, 1}, kThreads, 0, [&] {
    if (quads == 4) gather_four_quads_kernel(a, grid, rows);
    else gather_float4_kernel<0>(a, grid, quads, rows);
  });
  for (int64_t n = 0; n < a.num_points; ++n) {
    const Stencil<float> s = make_stencil(a.coords + 3 * n, a.vertices, long_rows);
    for (int64_t c = 0; c < a.channels; ++c) {
      float sum = 0;
      for (int k = 0; k < 8; ++k) {
        const int64_t row = long_rows.row(s.corner_row(k));
        if (row >= 0) sum += s.corner_weight(k) * widen(a.grid[row * a.channels + c]);
      }
      expect_same(widen(out[n * a.channels + c]), widen(narrow<Interpolated<S>>(sum)), 0, "interpolated, to the last bit");
    }
  }
}

// As gather, with values that are stored as float16.
template <class S, class Rows, class LongRows>
void gather_short(const Job& job, const Rows& rows, const LongRows& long_rows, int64_t values) {
  const TrilinearArgs<float>& b = job.a;
  std::vector<Float16> stored;
  for (int64_t i = 0; i < values; ++i) stored.push_back(narrow_at_random<Float16>(b.grid[i], 0));
  std::vector<Interpolated<S>> out(size_t(b.num_points * b.channels));
  TrilinearArgs<S> a = {};
  std::copy(b.vertices, b.vertices + 3, a.vertices);
  a.table = b.table, a.channels = b.channels, a.coords = b.coords, a.num_points = b.num_points;
  a.grid = stored.data(), a.out = out.data();
  gather(a, job.grid, rows, long_rows);
}

int numbers_of_piece(int64_t channels) { return channels % 4 ? 1 : 4; }

template <class S, class Rows>
void launch_scatter(const TrilinearArgs<S>& a, const ShortGrid& grid, const Rows& rows) {
  const int piece = numbers_of_piece(a.channels), width = int(a.channels / piece);
  const int64_t threads = (a.num_points + kRun - 1) / kRun * 2 * width;
  emulated::launch({int((threads + kThreads - 1) / kThreads), 1}, kThreads, 0, [&] {
    if (a.channels == 16) scatter_sixteen_kernel(a, grid, rows);
    else if (piece == 4) scatter_runs_kernel<float4, 0>(a, grid, width, rows);
    else scatter_runs_kernel<float, 0>(a, grid, width, rows);
  });
}

// What a grid's gradient gets by loops, and the sum of the sizes of what is added. piece: numbers of a row that add nothing
// if all of them are zero.
template <class LongRows>
void add_up(const TrilinearArgs<float>& a, const LongRows& long_rows, int piece, std::vector<double>& wanted,
            std::vector<double>& sizes) {
  for (int64_t n = 0; n < a.num_points; ++n) {
    const Stencil<float> s = make_stencil(a.coords + 3 * n, a.vertices, long_rows);
    for (int64_t first = 0; first < a.channels; first += piece) {
      const float* grad = a.grad_out + n * a.channels + first;
      bool adds = false;
      for (int c = 0; c < piece; ++c) adds |= grad[c] != 0;
      for (int k = 0; k < 8 && adds; ++k) {
        const int64_t row = long_rows.row(s.corner_row(k));
        for (int c = 0; c < piece && row >= 0; ++c) {
          wanted[row * a.channels + first + c] += s.corner_weight(k) * grad[c];
          sizes[row * a.channels + first + c] += std::abs(s.corner_weight(k) * grad[c]);
        }
      }
    }
  }
}

template <class Rows, class LongRows>
void scatter(const Job& job, const Rows& rows, const LongRows& long_rows, const std::vector<float>& found) {
  const TrilinearArgs<float>& a = job.a;
  launch_scatter(a, job.grid, rows);
  std::vector<double> wanted(found.size()), sizes(found.size());
  add_up(a, long_rows, numbers_of_piece(a.channels), wanted, sizes);
  for (size_t i = 0; i < wanted.size(); ++i) expect_same(found[i], wanted[i], 2e-5, "gradients of the grid");
}

// With gradients that are stored as bfloat16, on both sides.
template <class Rows, class LongRows>
void scatter_short(const Job& job, const Rows& rows, const LongRows& long_rows, size_t values) {
  const TrilinearArgs<float>& b = job.a;
  std::vector<BFloat16> found(values), grad_out;
  for (int64_t i = 0; i < b.num_points * b.channels; ++i) grad_out.push_back(narrow<BFloat16>(b.grad_out[i]));
  TrilinearArgs<ShortSamples> a = {};
  std::copy(b.vertices, b.vertices + 3, a.vertices);
  a.table = b.table, a.channels = b.channels, a.coords = b.coords, a.num_points = b.num_points;
  a.grad_out = grad_out.data(), a.grad_grid = found.data();
  launch_scatter(a, job.grid, rows);
  std::vector<double> wanted(values), sizes(values);
  add_up(b, long_rows, b.channels == 16 ? 8 : numbers_of_piece(b.channels), wanted, sizes);
  for (size_t i = 0; i < values; ++i)
    expect_same(widen(found[i]), wanted[i], sizes[i] / 16, "gradients of the grid as bfloat16");
}

void interpolate(const Case& c, int64_t channels) {
  TrilinearArgs<float> a = {};
  std::copy(c.vertices, c.vertices + 3, a.vertices);
  std::vector<uint64_t> words;
  if (c.sparse) a.table = table_of(c, words);
  const int64_t rows = c.sparse ? a.table.count : c.vertices[0] * c.vertices[1] * c.vertices[2];
  const std::vector<float> grid = drawn(rows * channels), coords = points_of_rays(c);
  std::vector<float> out(c.points * channels, -1), grad_out = drawn(c.points * channels), grad_grid(rows * channels);
  for (int n = 0; n < c.points; ++n)  // a long stretch without gradients, some points, and one piece of some others
    for (int64_t i = 0; i < channels; ++i)
      if ((n >= 90 && n < 180) || n % 5 == 3 || (n % 7 == 1 && i / 4 == 1)) grad_out[n * channels + i] = 0;
  a.channels = channels;
  a.num_points = c.points;
  a.grid = grid.data(), a.coords = coords.data(), a.out = out.data();
  a.grad_out = grad_out.data(), a.grad_grid = grad_grid.data();
  expect(is_short(a), "a small grid is short");
  const auto both = [&](const auto& short_rows, const auto& long_rows) {
    const Job job = {a, ShortGrid(a.vertices, short_rows)};
    if (channels % 4 == 0) {
      gather(job.a, job.grid, short_rows, long_rows);
      gather_short<ShortValues>(job, short_rows, long_rows, rows * channels);
      gather_short<ShortSamples>(job, short_rows, long_rows, rows * channels);
    }
    scatter(job, short_rows, long_rows, grad_grid);
    scatter_short(job, short_rows, long_rows, grad_grid.size());
  };
  if (c.sparse) both(a.table.short_sparse(), a.table.sparse());
  else both(DenseRows(), DenseRows());
}

// The kernel of four float4 per row keeps sums as long as the one of any number does.
void sums_are_kept() {
  const Case c = {{9, 8, 7}, false, 333};
  std::vector<float> coords(3 * c.points);
  for (int n = 0; n < c.points; ++n)  // within the grid, and on no vertex
    for (int axis = 0; axis < 3; ++axis) coords[3 * n + axis] = 0.3f + 0.29f * float(n * (axis + 1) % 37 % 20);
  const std::vector<float> grad_out = drawn(c.points * 16);
  std::vector<float> grad_grid(9 * 8 * 7 * 16);
  TrilinearArgs<float> a = {};
  std::copy(c.vertices, c.vertices + 3, a.vertices);
  a.channels = 16, a.num_points = c.points;
  a.coords = coords.data(), a.grad_out = grad_out.data(), a.grad_grid = grad_grid.data();
  const DenseRows rows;
  const ShortGrid grid(a.vertices, rows);
  const int blocks = (c.points + kRun - 1) / kRun * 8 / kThreads + 1;
  int of_each[2];
  for (int four = 0; four < 2; ++four) {
    additions = 0;
    emulated::launch({blocks, 1}, kThreads, 0, [&] {
      if (four) scatter_sixteen_kernel(a, grid, rows);
      else scatter_runs_kernel<float4, 0>(a, grid, 4, rows);
    });
    of_each[four] = additions;
  }
  expect(of_each[0] > 0 && of_each[1] == of_each[0], "additions to memory");
}

void grids_that_are_not_short() {
  TrilinearArgs<float> a = {};
  a.vertices[0] = 1 << 10, a.vertices[1] = 1 << 10, a.vertices[2] = 1 << 11;
  expect(!is_short(a), "2^31 vertices");
  --a.vertices[2];
  expect(is_short(a), "fewer vertices");
  uint64_t word;
  a.table = {&word, 5};
  expect(!is_short(a), "as many with what a word holds");
  a.vertices[2] -= 31;
  expect(is_short(a), "fewer words");
  a.table.count = int64_t(1) << 31;
  expect(!is_short(a), "2^31 rows");
  a.table.count = 5, a.num_points = kShortPoints + 1;
  expect(!is_short(a), "many points");
  a = {};
  a.vertices[0] = kShortCells + 1, a.vertices[1] = a.vertices[2] = 1;
  expect(!is_short(a), "a long axis");
}

}  // namespace

int main() {
  const Case cases[] = {{{9, 8, 7}, false, 333}, {{9, 8, 7}, true, 333},  {{4, 3, 70}, true, 261},
                        {{1, 5, 33}, true, 65},  {{5, 1, 1}, true, 40},   {{3, 4, 1}, false, 40},
                        {{1, 1, 1}, false, 9},   {{1, 1, 2}, true, 1}};
  for (const Case& c : cases)
    for (const int64_t channels : {16, 12, 1}) interpolate(c, channels);
  sums_are_kept();
  grids_that_are_not_short();
  return failures ? 1 : 0;
}
