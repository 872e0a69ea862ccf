// mark_vertices: which rows of a sparse grid a step needs.
#include "../portable/mark_vertices.h"

#include "operation.h"
#include "row_table.h"

namespace nerf {

Tensor mark_vertices(const Tensor& coords, const Tensor& table, int64_t size_z) {
  check_floating("coords", coords);
  check_argument("coords", coords, coords, coords.scalar_type(), {kAny, 3});
  check_table(table, size_z, coords);
  const Tensor x = dense(coords), words = dense(table);
  Tensor marks = zeros(words, {table.size(0), table.size(1), table.size(2)}, ScalarType::Long);
  with_scalar(x, [&](auto scalar) {
    using T = decltype(scalar);
    MarkVerticesArgs<T> a = {};
    a.coords = data<T>(x);
    a.num_points = x.size(0);
    a.vertices[0] = table.size(0);
    a.vertices[1] = table.size(1);
    a.vertices[2] = size_z;
    a.table = data<uint64_t>(words);
    a.marks = data<uint64_t>(marks);
    NERF_CALL(x, mark_vertices, a);
  });
  return marks;
}

NERF_OPERATION(mark_vertices, "(Tensor coords, Tensor table, int size_z) -> Tensor")

}  // namespace nerf
