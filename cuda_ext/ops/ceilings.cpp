// What a GPU can do at best with random addresses, measured by the benchmark on the device at hand. CUDA only: no part of
// torch.ops.nerf, no counterpart elsewhere.
#include "../cuda/ceilings.h"

#include "operation.h"

#ifdef NERF_WITH_CUDA
namespace nerf {
namespace {

void check_power_of_two(const char* name, int64_t count) {
  if (count <= 0 || (count & (count - 1)) != 0)
    reject(std::string(name) + " has " + std::to_string(count) + " places, expected a power of two");
}

}  // namespace

void gather_at_random(const Tensor& source, int64_t width, int64_t count, const Tensor& sums) {
  check_argument("source", source, source, ScalarType::Float, {kAny});
  check_argument("sums", sums, source, ScalarType::Float, {1024});
  if (width != 1 && width != 32) reject("width is " + std::to_string(width) + ", expected 1 or 32 floats");
  check_power_of_two("source", source.numel() / width);
  check_in_place("source", source);
  check_in_place("sums", sums);
  cuda::gather_at_random(data<float>(source), source.numel() / width, int(width), data<float>(sums), count,
                         current_stream(source));
}

void add_at_random(const Tensor& target, int64_t width, int64_t count) {
  check_argument("target", target, target, ScalarType::Float, {kAny});
  check_in_place("target", target);
  if (width != 1 && width != 4) reject("width is " + std::to_string(width) + ", expected 1 or 4 floats");
  check_power_of_two("target", target.numel() / width);
  cuda::add_at_random(data<float>(target), target.numel() / width, int(width), count, current_stream(target));
}

STABLE_TORCH_LIBRARY(nerf_ceilings, m) {
  m.def("gather_at_random(Tensor source, int width, int count, Tensor(a!) sums) -> ()");
  m.def("add_at_random(Tensor(a!) target, int width, int count) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(nerf_ceilings, CUDA, m) {
  m.impl("gather_at_random", TORCH_BOX(&gather_at_random));
  m.impl("add_at_random", TORCH_BOX(&add_at_random));
}

}  // namespace nerf
#endif
