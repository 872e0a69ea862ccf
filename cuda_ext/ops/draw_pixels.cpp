// draw_pixels: the pixels of a batch, from random numbers.
#include "../portable/draw_pixels.h"

#include "operation.h"

namespace nerf {
namespace {

constexpr int64_t kMostPixels = int64_t(1) << 53;  // so far float64 counts

void check_runs(const Tensor& offsets, const Tensor& shifts, int64_t count, bool draws) {
  if (offsets.size(0) < 1) reject("offsets has shape [0], expected one number more than shifts");
  if (count < draws || count > kMostPixels)
    reject("count is " + std::to_string(count) + ", expected " + std::to_string(draws) + " to 2^53");
  if (draws && shifts.size(0) < 1) reject("shifts has shape [0], expected a run to draw from");
  if (offsets.is_cuda()) return;
  const int64_t last = data<int64_t>(offsets)[offsets.size(0) - 1];
  if (count != last)
    reject("count is " + std::to_string(count) + ", expected " + std::to_string(last) + ", the last of offsets");
}

}  // namespace

Tensor draw_pixels(const Tensor& random, const Tensor& offsets, const Tensor& shifts, int64_t count) {
  check_floating("random", random);
  check_argument("random", random, random, random.scalar_type(), {kAny});
  check_argument("offsets", offsets, random, ScalarType::Long, {kAny});
  check_argument("shifts", shifts, random, ScalarType::Long, {max2<int64_t>(offsets.size(0) - 1, 0)});
  const Tensor r = dense(random), o = dense(offsets), s = dense(shifts);
  check_runs(o, s, count, r.size(0) > 0);
  Tensor out = empty(r, {r.size(0)}, ScalarType::Long);
  with_scalar(r, [&](auto scalar) {
    using T = decltype(scalar);
    DrawPixelsArgs<T> a = {};
    a.random = data<T>(r);
    a.offsets = data<int64_t>(o);
    a.shifts = data<int64_t>(s);
    a.num_drawn = r.size(0);
    a.runs = s.size(0);
    a.count = count;
    a.part = double(count) / double(r.size(0));
    a.out = data<int64_t>(out);
    NERF_CALL(r, draw_pixels, a);
  });
  return out;
}

NERF_OPERATION(draw_pixels, "(Tensor random, Tensor offsets, Tensor shifts, int count) -> Tensor")

}  // namespace nerf
