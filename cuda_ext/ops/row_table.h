// The table of a sparse grid on the torch side: see math/rows.h.
#pragma once

#include "../math/rows.h"
#include "contents.h"

namespace nerf {

// The vertices and the rows of a grid that is dense, [X,Y,Z,C], or sparse: [L,C] and a table [X,Y,ceil(Z/32)] int64 for a
// size_z Z. What the table says is not looked at: kernels take a row that is not there for a missing one.
struct GridShape {
  int64_t vertices[3], channels;
  Tensor words;  // keeps the table alive
  RowTable table;
};

inline void check_table(const Tensor& table, int64_t size_z, const Tensor& first) {
  check_argument("table", table, first, ScalarType::Long, {kAny, kAny, kAny});
  const int64_t words = table.size(2);
  if (size_z < 1 || words != (size_z - 1) / kVerticesOfWord + 1)
    reject("table has shape " + shape_name(table.sizes()) + ", expected [*,*," +
           std::to_string(size_z < 1 ? 1 : (size_z - 1) / kVerticesOfWord + 1) + "], a word for " +
           std::to_string(kVerticesOfWord) + " vertices of size_z " + std::to_string(size_z));
  if (product("table", {table.size(0), table.size(1)}) == 0)
    reject("table has shape " + shape_name(table.sizes()) + ", expected at least one vertex");
  product("table", {table.size(0), table.size(1), words, kVerticesOfWord});
}

inline GridShape sparse_shape(const char* name, const Tensor& grid, const Tensor& table, int64_t size_z,
                              const Tensor& first) {
  check_argument(name, grid, first, first.scalar_type(), {kAny, kAny});
  check_table(table, size_z, first);
  check_channels(name, grid.size(1));
  GridShape shape = {{table.size(0), table.size(1), size_z}, grid.size(1), dense(table), {}};
  shape.table = {data<uint64_t>(shape.words), grid.size(0)};
  return shape;
}

inline GridShape grid_shape(const char* name, const Tensor& grid, const std::optional<Tensor>& table, int64_t size_z,
                            const Tensor& first) {
  if (table) return sparse_shape(name, grid, *table, size_z, first);
  check_argument(name, grid, first, first.scalar_type(), {kAny, kAny, kAny, kAny});
  check_channels(name, grid.size(3));
  return {{grid.size(0), grid.size(1), grid.size(2)}, grid.size(3), no_gradient(grid), {}};
}

}  // namespace nerf
