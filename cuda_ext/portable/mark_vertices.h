// mark_vertices: one point at a time. Which of them comes first does not matter to bits that are only ever set.
#pragma once

#include "../device.h"
#include "../math/mark_vertices.h"

namespace nerf {
namespace portable {

template <class T>
void mark_vertices(const Device& device, const MarkVerticesArgs<T>& a) {
  device.for_each("mark_vertices", a.num_points, [a] ON_DEVICE(int64_t n) { mark_point<T, Device>(a, n); });
}

}  // namespace portable

NERF_PORTABLE(mark_vertices, MarkVerticesArgs)

}  // namespace nerf
