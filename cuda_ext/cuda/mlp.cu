// mlp on CUDA: all layers in one kernel on tensor cores, for rounded products of float32 tensors, widths of 64, 128 and
// 256 and up to eight outputs, on sm_80 and up. A tile of rows stays in shared memory from layer to layer; on
// Hopper, for widths of 128 and 256, in a warpgroup's registers. Backward three kernels: the tile's gradients back
// through the layers, with all gradients of parameters but those of the weights between hidden layers; these, each over
// a split of the rows; and the sums over tiles and splits, in one order. Everything else: the portable bodies.
#include "warp.cuh"
#include "wgmma.cuh"

#include "../portable/mlp.h"
#include "mlp_backward.cuh"
#include "mlp_backward_warpgroups.cuh"
#include "mlp_forward.cuh"
#include "mlp_warpgroups.cuh"
#include "mlp_weights_warpgroups.cuh"

namespace nerf::cuda {
namespace {

constexpr int64_t kAlignment = 256;  // of the parts of scratch
constexpr int kForwardStages = 3, kLargeStages = 3, kSmallStages = 2;  // pieces of weights in shared memory at once
constexpr int kWeightStages = 3;                                       // pieces of factors of the weights' gradients

int attribute(cudaDeviceAttr which, Stream stream) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, stream.device), "cudaDeviceGetAttribute");
  return value;
}

int shared_bytes(Stream stream) { return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, stream); }

template <class Kernel>
cudaFuncAttributes attributes(Kernel kernel, Stream stream) {
  const DeviceGuard guard(stream.device);
  cudaFuncAttributes known;
  check(cudaFuncGetAttributes(&known, kernel), "mlp");
  return known;
}

// Whether the code that runs here was compiled for tensor cores of bfloat16: a library for older GPUs may run on newer ones.
bool has_products(Stream stream) {
  return attribute(cudaDevAttrComputeCapabilityMajor, stream) >= 8 &&
         attributes(mlp_forward_kernel<64, 1, kForwardStages>, stream).ptxVersion >= 80;
}

// Whether it was compiled for products by warpgroups: else their kernels are empty, and have no barriers in shared
// memory.
bool has_warpgroups(const MlpArgs<float>& a, Stream stream) {
  const bool fits = a.width >= 128 && is_pack_aligned(a.params);
  return fits && attributes(mlp_warpgroups_kernel<256>, stream).sharedSizeBytes > 0;
}

template <class T>
bool is_fused(const MlpArgs<T>& a, Stream stream) {
  if constexpr (!std::is_same_v<T, float>) return false;
  const bool known = a.width == 64 || a.width == 128 || a.width == 256;
  return a.rounded && known && a.outputs <= kMaxOutputs && round_up(a.inputs_count, kStep) <= a.width && a.inputs_count > 0 &&
         a.rows > 0 && a.layers <= 64 && is_pack_aligned(static_cast<const char*>(a.kept)) &&
         shared_bytes(stream) >= mlp_backward_bytes<256, 1, kSmallStages>() && has_products(stream);
}

// body(the width as a constant).
template <class Body>
void with_width(int64_t width, const Body& body) {
  switch (width) {
    case 64: return body(std::integral_constant<int, 64>());
    case 128: return body(std::integral_constant<int, 128>());
    default: return body(std::integral_constant<int, 256>());
  }
}

// Tiles of 64 rows forward, two of which share a processor, so that one computes while the other waits. Backward tiles of 128 rows,
// so that half as many read the weights, where two of them fit into shared memory.
bool are_large(const MlpArgs<float>& a, Stream stream) {
  bool large = false;
  with_width(a.width, [&](auto width) {
    large = a.grad_out && shared_bytes(stream) >= mlp_backward_bytes<decltype(width)::value, 2, kLargeStages>();
  });
  return large;
}

static_assert(mlp_backward_bytes<256, 2, kLargeStages>() <= kSharedBytesOfHopper, "Hopper has large tiles alone");

// Cuts scratch into pieces, or adds up what it takes.
class Cutter {
 public:
  explicit Cutter(void* memory) : at_(reinterpret_cast<uintptr_t>(memory)) {}
  template <class T>
  T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(at_);
    at_ += uintptr_t(round_up(count * int64_t(sizeof(T)), kAlignment));
    return piece;
  }
  int64_t taken(void* memory) const { return int64_t(at_ - reinterpret_cast<uintptr_t>(memory)); }

 private:
  uintptr_t at_;
};

MlpPlan make_plan(const MlpArgs<float>& a, Stream stream, int64_t* bytes) {
  MlpPlan p = {};
  p.inputs = a.inputs;
  p.params = a.params;
  p.needed = a.needed;
  p.rows = a.rows;
  p.inputs_count = p.grad_columns = int(a.inputs_count);
  p.width = int(a.width);
  p.layers = int(a.layers);
  p.outputs = int(a.outputs);
  p.kept = static_cast<BFloat16*>(a.kept);
  p.out = a.out;
  p.grad_out = a.grad_out;
  p.grad_inputs = a.grad_inputs;
  p.grad_params = a.grad_params;
  p.by_warpgroups = has_warpgroups(a, stream);
  int64_t tile = are_large(a, stream) ? 2 * kWarpRows : kWarpRows;
  const int64_t chips = processors(stream);
  if (a.grad_out && p.by_warpgroups) {
    p.by_warpgroups = a.width == 128 ? place_back_weights<128>(p, shared_bytes(stream))
                                     : place_back_weights<256>(p, shared_bytes(stream));
    if (p.by_warpgroups) tile = a.width == 128 ? BackTile<128>::kRows : BackTile<256>::kRows;
  }
  p.blocks = int(min2((p.rows + tile - 1) / tile, a.grad_out || p.by_warpgroups ? chips : 2 * chips));
  const int64_t jobs = max2(int64_t(1), (a.layers - 1) * max2(int64_t(1), a.width / 128));
  p.splits = int(max2(int64_t(1), min2(chips / jobs, (p.rows + kStep - 1) / kStep)));
  if (p.by_warpgroups) p.splits = int(min2(p.splits, p.blocks));  // whose slots take the splits' sums of biases
  Cutter scratch(a.scratch);
  p.packed = scratch.take<BFloat16>(a.grad_out ? p.backward_size() : p.forward_size());
  if (a.needed && !a.kept) {
    p.needed_tiles = scratch.take<int>((p.rows + tile - 1) / tile);
    p.needed_count = scratch.take<int>(1);
  }
  if (a.grad_out) {
    p.grads = scratch.take<BFloat16>((a.layers - 1) * a.rows * a.width);
    p.slots = scratch.take<float>(p.blocks * p.slot_size());
    p.parts = scratch.take<float>(p.splits * (a.layers - 1) * a.width * a.width);
  }
  if (bytes) *bytes = scratch.taken(a.scratch);
  return p;
}

// early: the kernel may start before the one before it has ended, and waits for it by itself.
template <class Kernel>
void start(Kernel kernel, dim3 blocks, int threads, int bytes, const char* name, Stream stream, const MlpPlan& p,
           bool early = false) {
  const DeviceGuard guard(stream.device);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  cudaLaunchAttribute starts_early = {};
  starts_early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  starts_early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t how = {};
  how.gridDim = blocks;
  how.blockDim = dim3(unsigned(threads));
  how.dynamicSmemBytes = size_t(bytes);
  how.stream = cudaStream_t(stream.handle);
  how.attrs = &starts_early;
  how.numAttrs = early;
  check(cudaLaunchKernelEx(&how, kernel, p), name);
}

// A warp looks at a tile of the forward kernel. needed_count is 0 before.
__global__ void __launch_bounds__(kThreads) find_needed_kernel(MlpPlan p) {
  const int64_t tile = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32, first = tile * kWarpRows;
  const int lane = int(threadIdx.x % 32);
  if (first >= p.rows) return;
  const int64_t end = min2(first + kWarpRows, p.rows);
  bool found = false;
  for (int64_t row = first + lane; row < end; row += 32) found |= p.needed[row] != 0.0f;
  if (__any_sync(kAllLanes, found)) {
    if (lane == 0) p.needed_tiles[atomicAdd(p.needed_count, 1)] = int(tile);
    return;
  }
  for (int64_t i = first * p.outputs + lane; i < end * p.outputs; i += 32) p.out[i] = 0.0f;
}

template <int kWidth>
void start_forward(MlpPlan p, Stream stream) {
  if constexpr (kWidth >= 128) {
    if (p.by_warpgroups) {
      place_weights<kWidth>(p, shared_bytes(stream));
      return start(mlp_warpgroups_kernel<kWidth>, unsigned(p.blocks), Groups<kWidth>::kThreadCount,
                   mlp_warpgroups_bytes<kWidth>(p), "mlp", stream, p, true);
    }
  }
  start(mlp_forward_kernel<kWidth, 1, kForwardStages>, unsigned(p.blocks), kColumnWarps * 32,
        mlp_forward_bytes<kWidth, 1, kForwardStages>(), "mlp", stream, p);
}

template <int kWidth, int kWarps, int kStages>
void start_backward(const MlpPlan& p, Stream stream) {
  if constexpr (kWidth >= 128) {
    if (p.by_warpgroups)
      return start(mlp_backward_warpgroups_kernel<kWidth>, unsigned(p.blocks), Groups<kWidth>::kThreadCount,
                   mlp_backward_warpgroups_bytes<kWidth>(p), "mlp_backward", stream, p, true);
  }
  start(mlp_backward_kernel<kWidth, kWarps, kStages>, unsigned(p.blocks), kWarps * kColumnWarps * 32,
        mlp_backward_bytes<kWidth, kWarps, kStages>(), "mlp_backward", stream, p);
}

template <int kWidth>
void start_weights(const MlpPlan& p, Stream stream) {
  if constexpr (kWidth >= 128) {
    using Shape = WeightGroups<kWidth>;
    const dim3 blocks(unsigned(p.splits), unsigned(p.layers - 1) * (kWidth / Shape::kLeft));
    if (p.by_warpgroups)
      return start(mlp_weights_warpgroups_kernel<kWidth>, blocks, Shape::kThreadCount,
                   mlp_weights_warpgroups_bytes<kWidth>(), "mlp_backward", stream, p);
  }
  using Shape = WeightTile<kWidth>;
  const dim3 blocks(unsigned(p.splits), unsigned(p.layers - 1) * (kWidth / Shape::kSide));
  start(mlp_weights_kernel<kWidth, kWeightStages>, blocks, Shape::kThreadCount, mlp_weights_bytes<kWidth, kWeightStages>(),
        "mlp_backward", stream, p);
}

}  // namespace

template <class T>
void mlp_scratch(const MlpArgs<T>& a, Stream stream) {
  if constexpr (std::is_same_v<T, float>) {
    if (is_fused(a, stream)) return void(make_plan(a, stream, a.scratch_bytes));
  }
  cuda_plain::mlp_scratch(a, stream);
}

template <class T>
void mlp(const MlpArgs<T>& a, Stream stream) {
  if constexpr (std::is_same_v<T, float>) {
    if (is_fused(a, stream)) {
      const MlpPlan p = make_plan(a, stream, nullptr);
      launch(pack_weights<false>, p.forward_size() / 2, "mlp", stream, p, const_cast<BFloat16*>(p.packed));
      if (p.needed_tiles) {
        const DeviceGuard guard(stream.device);
        check(cudaMemsetAsync(p.needed_count, 0, sizeof(int), cudaStream_t(stream.handle)), "mlp");
        launch(find_needed_kernel, (p.rows + kWarpRows - 1) / kWarpRows * 32, "mlp", stream, p);
      }
      return with_width(a.width, [&](auto width) { start_forward<decltype(width)::value>(p, stream); });
    }
  }
  cuda_plain::mlp(a, stream);
}

template <class T>
void mlp_backward(const MlpArgs<T>& a, Stream stream) {
  if constexpr (std::is_same_v<T, float>) {
    if (is_fused(a, stream)) {
      const MlpPlan p = make_plan(a, stream, nullptr);
      launch(pack_weights<true>, p.backward_size() / 2, "mlp_backward", stream, p, const_cast<BFloat16*>(p.packed));
      const bool large = are_large(a, stream);
      with_width(a.width, [&](auto width) {
        constexpr int kWidth = decltype(width)::value;
        if (large) start_backward<kWidth, 2, kLargeStages>(p, stream);
        else start_backward<kWidth, 1, kSmallStages>(p, stream);
        if (p.layers > 1) start_weights<kWidth>(p, stream);
      });
      const int64_t slots = (p.slot_size() + kAddedAtOnce - 1) / kAddedAtOnce;
      const int64_t parts = (p.layers - 1) * a.width * a.width / kAddedAtOnce;
      return launch(add_parts, (slots + parts) * kThreads, "mlp_backward", stream, p, int(slots));
    }
  }
  cuda_plain::mlp_backward(a, stream);
}

NERF_INSTANTIATE(mlp_scratch, MlpArgs)
NERF_INSTANTIATE(mlp, MlpArgs)
NERF_INSTANTIATE(mlp_backward, MlpArgs)

}  // namespace nerf::cuda
