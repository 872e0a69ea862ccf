// bring_rows: what mark_vertices has marked, copied from a grid that may be in host memory.
#include "../portable/bring_rows.h"

#include <array>

#include "march_inputs.h"  // read_count
#include "operation.h"
#include "row_table.h"

namespace nerf {
namespace {

Tensor sums_up_to(const Tensor& counts) {
  using torch::stable::detail::from;
  std::array<StableIValue, 3> stack{from(counts), from(int64_t(0)), from(std::optional<ScalarType>())};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::cumsum", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

void check_room(const char* name, int64_t room) {
  if (room < 0) reject(std::string(name) + " is " + std::to_string(room) + ", expected 0 (exact) or a number of rows");
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> bring_rows(const Tensor& grid, const Tensor& marks,
                                                                      const Tensor& table, int64_t size_z,
                                                                      int64_t capacity, int64_t corner_capacity) {
  check_stored("grid", grid);
  check_argument("grid", grid, grid, grid.scalar_type(), {kAny, kAny});
  const int64_t channels = grid.size(1);
  check_channels("grid", channels);
  check_table(table, size_z, grid);
  const Shape shape = {table.size(0), table.size(1), table.size(2)};
  check_argument("marks", marks, grid, ScalarType::Long, shape);
  check_room("capacity", capacity);
  check_room("corner_capacity", corner_capacity);
  const Tensor g = dense(grid), marked = dense(marks), words = dense(table);
  Tensor window = empty(words, shape, ScalarType::Long), counts = empty(words, {2}, ScalarType::Long);
  Tensor values, stored, corners, vertices;
  with_stored(g, [&](auto scalar) {
    using S = decltype(scalar);
    BringRowsArgs<S> a = {};
    a.grid = data<S>(g);
    a.all_rows = g.size(0);
    a.channels = channels;
    a.marks = data<uint64_t>(marked);
    a.table = data<uint64_t>(words);
    a.words = words.numel();
    a.words_of_line = shape[2];
    a.size_z = size_z;
    a.window = data<uint64_t>(window);
    a.counts = data<int64_t>(counts);
    Tensor ends = empty(words, {a.tiles()}, ScalarType::Long);
    a.ends = data<int64_t>(ends);
    NERF_CALL(g, bring_rows_count, a);
    ends = sums_up_to(ends);
    a.ends = data<int64_t>(ends);
    a.capacity = capacity;
    a.corner_capacity = corner_capacity;
    if (capacity == 0) {
      const uint64_t all = uint64_t(read_count(ends));
      a.capacity = int64_t(all & 0xFFFFFFFFu);
      a.corner_capacity = int64_t(all >> 32);
    }
    values = empty(g, {a.capacity, channels}, wide_dtype(g));
    stored = empty(words, {a.capacity}, ScalarType::Long);
    corners = empty(words, {a.corner_capacity}, ScalarType::Long);
    vertices = empty(words, {a.corner_capacity}, ScalarType::Long);
    a.values = data<Wide<S>>(values);
    a.stored = data<int64_t>(stored);
    a.corners = data<int64_t>(corners);
    a.vertices = data<int64_t>(vertices);
    NERF_CALL(g, bring_rows, a);
  });
  return {window, values, stored, corners, vertices, counts};
}

NERF_OPERATION(bring_rows,
               "(Tensor grid, Tensor marks, Tensor table, int size_z, int capacity=0, int corner_capacity=0) -> "
               "(Tensor window, Tensor values, Tensor stored, Tensor corners, Tensor vertices, Tensor counts)")

}  // namespace nerf
