// all_finite: a look at all numbers of several tensors.
#include "../portable/all_finite.h"

#include "operation.h"

namespace nerf {
namespace {

// All of the first one's dtype and device, and dense.
std::vector<Tensor> checked_tensors(const std::vector<Tensor>& tensors) {
  if (tensors.empty()) reject("tensors has no tensor, expected at least one");
  std::vector<Tensor> numbers;
  for (const Tensor& t : tensors) {
    const std::string name = "tensors[" + std::to_string(numbers.size()) + "]";
    if (numbers.empty()) check_floating(name.c_str(), t);
    check_argument(name.c_str(), t, tensors[0], tensors[0].scalar_type(), Shape(t.sizes().begin(), t.sizes().end()));
    numbers.push_back(dense(t));
  }
  return numbers;
}

// Up to kMostTensors of them, from that one on.
template <class T>
AllFiniteArgs<T> all_finite_arguments(const std::vector<Tensor>& numbers, size_t first) {
  AllFiniteArgs<T> a = {};
  for (size_t t = 0; t < kMostTensors; ++t) {
    if (first + t < numbers.size()) {
      a.values[t] = data<T>(numbers[first + t]);
      a.sizes[t] = numbers[first + t].numel();
      a.chunks += (a.sizes[t] + kFiniteChunk - 1) / kFiniteChunk;
    }
    a.chunk_ends[t] = a.chunks;
  }
  return a;
}

}  // namespace

Tensor all_finite(const std::vector<Tensor>& tensors) {
  const std::vector<Tensor> numbers = checked_tensors(tensors);
  Tensor finite = empty(numbers[0], {}, ScalarType::Bool);
  torch::stable::fill_(finite, 1.0);
  with_scalar(numbers[0], [&](auto scalar) {
    using T = decltype(scalar);
    for (size_t first = 0; first < numbers.size(); first += kMostTensors) {
      AllFiniteArgs<T> a = all_finite_arguments<T>(numbers, first);
      a.finite = data<bool>(finite);
      NERF_CALL(numbers[0], all_finite, a);
    }
  });
  return finite;
}

NERF_OPERATION(all_finite, "(Tensor[] tensors) -> Tensor")

}  // namespace nerf
