// carve_points: the points of a visual hull.
#include "../portable/carve_points.h"

#include "operation.h"

namespace nerf {

Tensor carve_points(const Tensor& points, const Tensor& c2w, const Tensor& intrinsics, const Tensor& counts,
                    const Tensor& reach) {
  check_floating("points", points);
  const ScalarType dtype = points.scalar_type();
  check_argument("points", points, points, dtype, {kAny, 3});
  check_argument("c2w", c2w, points, dtype, {kAny, 3, 4});
  const int64_t views = c2w.size(0);
  check_argument("intrinsics", intrinsics, points, dtype, {views, 4});
  check_argument("counts", counts, points, ScalarType::Int, {views, kAny, kAny});
  if (counts.size(1) < 2 || counts.size(2) < 2)
    reject("counts has shape " + shape_name(counts.sizes()) + ", expected a row and a column more than there are pixels");
  check_argument("reach", reach, points, ScalarType::Long, {views});
  const Tensor p = dense(points), m = dense(c2w), k = dense(intrinsics), c = dense(counts), r = dense(reach);
  if (!r.is_cuda())
    for (int64_t view = 0; view < views; ++view)
      if (data<int64_t>(r)[view] < 0)
        reject("reach has the value " + std::to_string(data<int64_t>(r)[view]) + " at " + std::to_string(view) +
               ", expected 0 or more");
  Tensor out = empty(p, {p.size(0)}, ScalarType::Bool);
  with_scalar(p, [&](auto scalar) {
    using T = decltype(scalar);
    CarvePointsArgs<T> a = {};
    a.points = data<T>(p);
    a.num_points = p.size(0);
    a.c2w = data<T>(m);
    a.intrinsics = data<T>(k);
    a.counts = data<int32_t>(c);
    a.reach = data<int64_t>(r);
    a.views = views;
    a.height = c.size(1) - 1;
    a.width = c.size(2) - 1;
    a.out = data<bool>(out);
    NERF_CALL(p, carve_points, a);
  });
  return out;
}

NERF_OPERATION(carve_points, "(Tensor points, Tensor c2w, Tensor intrinsics, Tensor counts, Tensor reach) -> Tensor")

}  // namespace nerf
