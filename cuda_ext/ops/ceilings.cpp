// What a GPU can do at best with random addresses, measured by the benchmark on the device at hand. CUDA only: no part of
// torch.ops.nerf, no counterpart elsewhere.
#include "ops.h"

#ifdef NERF_WITH_CUDA
namespace nerf {
namespace {

void check_power_of_two(const char* name, int64_t count) {
  if (count <= 0 || (count & (count - 1)) != 0)
    reject(std::string(name) + " has " + std::to_string(count) + " places, expected a power of two");
}

}  // namespace

void gather_lines(const Tensor& lines, const Tensor& sums) {
  check_argument("lines", lines, lines, ScalarType::Float, {kAny, 32});
  check_argument("sums", sums, lines, ScalarType::Float, {1024});
  check_power_of_two("lines", lines.size(0));
  check_in_place("lines", lines);
  check_in_place("sums", sums);
  cuda::gather_lines(data<float>(lines), lines.size(0), data<float>(sums), 8 * lines.size(0), current_stream(lines));
}

void add_at_random(const Tensor& target, int64_t width, int64_t count) {
  check_argument("target", target, target, ScalarType::Float, {kAny});
  check_in_place("target", target);
  if (width != 1 && width != 4) reject("width is " + std::to_string(width) + ", expected 1 or 4 floats");
  check_power_of_two("target", target.numel() / width);
  cuda::add_at_random(data<float>(target), target.numel() / width, int(width), count, current_stream(target));
}

}  // namespace nerf
#endif
