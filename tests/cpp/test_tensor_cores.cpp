// The kernels of cuda_ext/cuda/mlp_*.cuh on a stand-in for a GPU, against loops in double that round where mlp.h says:
// which lane holds what, which row goes where, copies that arrive at once or as late as they may, rows that fill no tile.
#include "emulated_gpu.h"
// Behind the stand-in.
#include "cuda/mlp_backward.cuh"
#include "cuda/mlp_forward.cuh"
#include "cuda/mlp_weights.cuh"
#include "mlp_by_loops.h"

namespace {

using namespace nerf;
using namespace nerf::cuda;

template <int kWidth, int kBackwardWarps, int kBackwardStages>
void network(const Network& of, bool late) {
  emulated::late = late;
  MlpPlan p = plan_of(of);
  const auto inputs = drawn(int64_t(of.rows) * of.inputs, 1), grad_out = drawn(int64_t(of.rows) * of.outputs, 1);
  const auto params = drawn(p.size(), 1.5 / std::sqrt(kWidth));
  std::vector<float> out(of.rows * of.outputs), grad_inputs(of.rows * of.inputs), grad_params(p.size());
  const int64_t hidden = int64_t(of.layers) * of.rows * kWidth;
  Memory<BFloat16> forward(p.forward_size()), backward(p.backward_size()), kept(hidden), grads(hidden);
  Memory<float> slots(of.blocks * p.slot_size()), parts(int64_t(of.splits) * of.layers * kWidth * kWidth);
  p.inputs = inputs.data();
  p.params = params.data();
  p.kept = kept.get();
  p.out = out.data();
  p.grad_out = grad_out.data();
  p.grad_inputs = grad_inputs.data();
  p.grad_params = grad_params.data();
  p.grads = grads.get();
  p.slots = slots.get();
  p.parts = parts.get();

  const auto blocks = [](int64_t threads) { return Index{int((threads + 255) / 256), 1}; };
  emulated::launch(blocks(p.forward_size() / 2), 256, 0, [&] { pack_weights<false>(p, forward.get()); });
  p.packed = forward.get();
  emulated::launch({of.blocks, 1}, kColumnWarps * 32, mlp_forward_bytes<kWidth, 1, 3>(),
                   [&] { mlp_forward_kernel<kWidth, 1, 3>(p); });
  emulated::launch(blocks(p.backward_size() / 2), 256, 0, [&] { pack_weights<true>(p, backward.get()); });
  p.packed = backward.get();
  emulated::launch({of.blocks, 1}, kBackwardWarps * kColumnWarps * 32,
                   mlp_backward_bytes<kWidth, kBackwardWarps, kBackwardStages>(),
                   [&] { mlp_backward_kernel<kWidth, kBackwardWarps, kBackwardStages>(p); });
  if (of.layers > 1)
    emulated::launch({of.splits, (of.layers - 1) * (kWidth / WeightTile<kWidth>::kSide)}, 256,
                     mlp_weights_bytes<kWidth, 3>(), [&] { mlp_weights_kernel<kWidth, 3>(p); });
  const int slot_blocks = int(p.slot_size() + kAddedAtOnce - 1) / kAddedAtOnce;
  const int part_blocks = (of.layers - 1) * kWidth * kWidth / kAddedAtOnce;
  emulated::launch({slot_blocks + part_blocks, 1}, 256, 0, [&] { add_parts(p, slot_blocks); });

  const Gradients wanted = by_loops(p);
  expect_all_near(out, wanted.out, "results");
  expect_all_near(grad_inputs, wanted.inputs, "gradients of the inputs");
  expect_all_near(grad_params, wanted.params, "gradients of the parameters");
}

}  // namespace

int main() {
  network<64, 1, 2>({100, 20, 64, 2, 3, 1, 2}, false);
  network<64, 1, 2>({100, 20, 64, 2, 3, 1, 2}, true);
  network<64, 2, 3>({150, 44, 64, 3, 8, 1, 2}, true);
  network<64, 2, 3>({3, 64, 64, 1, 1, 1, 1}, false);
  network<128, 2, 3>({65, 100, 128, 2, 3, 1, 1}, false);
  return failures ? 1 : 0;
}
