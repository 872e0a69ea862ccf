// What makes a function of tensors an operation: the device that it calls, its schema and its registration.
#pragma once

#include <torch/csrc/stable/library.h>

#include "../stream.h"
#include "contents.h"

namespace nerf {

// The stream that PyTorch works on. Defined in ops/stream.cpp.
Stream current_stream(const Tensor& t);

// Within this scope, and on this thread, operations on CUDA tensors call the plain kernels.
class PlainScope {
 public:
  PlainScope() : outer_(active_) { active_ = true; }
  ~PlainScope() { active_ = outer_; }
  PlainScope(const PlainScope&) = delete;
  PlainScope& operator=(const PlainScope&) = delete;
  static bool active() { return active_; }

 private:
  inline static thread_local bool active_ = false;
  bool outer_;
};

// Plain<&operation>::call: the same operation with the plain kernels.
template <auto kOperation>
struct Plain;
template <class Result, class... Args, Result (*kOperation)(Args...)>
struct Plain<kOperation> {
  static Result call(Args... args) {
    const PlainScope scope;
    return kOperation(args...);
  }
};

// Calls nerf::cpu::function, nerf::cuda::function or nerf::cuda_plain::function by the device of the tensor and the scope.
#ifdef NERF_WITH_CUDA
#define NERF_CALL(tensor, function, ...)                                              \
  (!(tensor).is_cuda()    ? cpu::function(__VA_ARGS__, Stream())                      \
   : PlainScope::active() ? cuda_plain::function(__VA_ARGS__, current_stream(tensor)) \
                          : cuda::function(__VA_ARGS__, current_stream(tensor)))
#else
#define NERF_CALL(tensor, function, ...) cpu::function(__VA_ARGS__, Stream())
#endif

// Registers torch.ops.nerf.name, and torch.ops.nerf_plain.name, which has the same checks and no derivative: on CUDA it calls
// the portable bodies, the rung of the ladder beneath the fast kernels, for the benchmark and the tests. Defined in
// library.cpp.
class Registration {
 public:
  using Boxed = void (*)(StableIValue*, uint64_t, uint64_t);
  Registration(const char* schema, const char* name, Boxed fast, Boxed plain);

 private:
  using Library = torch::stable::detail::StableLibrary;
  struct Namespace {
    Namespace(const char* space, const char* schema, const char* name, Boxed function);
    Library schema, cpu;
#ifdef NERF_WITH_CUDA
    Library cuda;
#endif
  };
  Namespace fast_, plain_;
};

// NERF_OPERATION(scale_rows, "(Tensor values, Tensor factors) -> Tensor") behind the function of that name.
#define NERF_OPERATION(name, schema)                                                            \
  static const Registration registration_of_##name(#name schema, #name, TORCH_BOX(&nerf::name), \
                                                   TORCH_BOX(&nerf::Plain<&nerf::name>::call));

}  // namespace nerf
