// The kernels of cuda_ext/cuda/mlp_warpgroups.cuh, mlp_backward_warpgroups.cuh and mlp_weights_warpgroups.cuh on a
// stand-in for Hopper's warpgroups, against loops in double: where a descriptor finds a factor, which of a layer's
// columns a thread has, pieces that stay and pieces that pass through, groups without a tile.
#include "emulated_warpgroup.h"
// Behind the stand-in.
#include "cuda/mlp_backward_warpgroups.cuh"
#include "cuda/mlp_warpgroups.cuh"
#include "cuda/mlp_weights_warpgroups.cuh"
#include "mlp_by_loops.h"

namespace {

using namespace nerf;
using namespace nerf::cuda;

constexpr int kHopper = 227 * 1024;  // bytes of shared memory

// All gradients: the two kernels of warpgroups, and the last one, as on other GPUs.
template <int kWidth>
void backward(MlpPlan p, int shared, const Gradients& wanted) {
  const int64_t between = int64_t(p.layers - 1) * kWidth * kWidth;
  std::vector<float> grad_inputs(p.rows * p.inputs_count, -1), grad_params(p.size(), -1);
  Memory<BFloat16> packed(p.backward_size()), grads((p.layers - 1) * p.rows * kWidth);
  Memory<float> slots(p.blocks * p.slot_size()), parts(p.splits * between);
  p.grad_inputs = grad_inputs.data();
  p.grad_params = grad_params.data();
  p.grads = grads.get();
  p.slots = slots.get();
  p.parts = parts.get();
  expect(place_back_weights<kWidth>(p, shared), "shared memory is enough");
  expect(mlp_backward_warpgroups_bytes<kWidth>(p) <= shared, "shared memory");
  emulated::launch({int(p.backward_size() / 2 + 255) / 256, 1}, 256, 0, [&] { pack_weights<true>(p, packed.get()); });
  p.packed = packed.get();
  emulated::launch({p.blocks, 1}, Groups<kWidth>::kThreadCount, mlp_backward_warpgroups_bytes<kWidth>(p),
                   [&] { mlp_backward_warpgroups_kernel<kWidth>(p); });
  if (p.layers > 1)
    emulated::launch({p.splits, (p.layers - 1) * (kWidth / WeightGroups<kWidth>::kLeft)}, 256,
                     mlp_weights_warpgroups_bytes<kWidth>(), [&] { mlp_weights_warpgroups_kernel<kWidth>(p); });
  const int slot_blocks = int(p.slot_size() + kAddedAtOnce - 1) / kAddedAtOnce;
  emulated::launch({slot_blocks + int(between / kAddedAtOnce), 1}, 256, 0, [&] { add_parts(p, slot_blocks); });
  expect_all_near(grad_inputs, wanted.inputs, "gradients of the inputs");
  expect_all_near(grad_params, wanted.params, "gradients of the parameters");
}

// shared: bytes that a block may have forward; gap: once more without what is kept, and without one of so many tiles,
// 0: not so.
template <int kWidth>
void network(const Network& of, int shared, int gap, bool late) {
  emulated::late = late;
  MlpPlan p = plan_of(of);
  p.by_warpgroups = true;
  const auto inputs = drawn(int64_t(of.rows) * of.inputs, 1), params = drawn(p.size(), 1.5 / std::sqrt(kWidth));
  const auto grad_out = drawn(int64_t(of.rows) * of.outputs, 1);
  std::vector<float> out(of.rows * of.outputs, -1);
  Memory<BFloat16> packed(p.forward_size()), kept(int64_t(of.layers) * of.rows * kWidth);
  p.inputs = inputs.data();
  p.params = params.data();
  p.kept = kept.get();
  p.out = out.data();
  p.grad_out = grad_out.data();
  place_weights<kWidth>(p, shared);
  expect(mlp_warpgroups_bytes<kWidth>(p) <= shared, "shared memory");
  const auto run = [&] {
    emulated::launch({of.blocks, 1}, Groups<kWidth>::kThreadCount, mlp_warpgroups_bytes<kWidth>(p),
                     [&] { mlp_warpgroups_kernel<kWidth>(p); });
  };
  emulated::launch({int(p.forward_size() / 2 + 255) / 256, 1}, 256, 0, [&] { pack_weights<false>(p, packed.get()); });
  p.packed = packed.get();
  run();
  const Gradients all = by_loops(p);
  const std::vector<double>& wanted = all.out;
  expect_all_near(out, wanted, "results");
  backward<kWidth>(p, kHopper, all);
  if (gap == 0) return;

  std::vector<float> needed(of.rows), only(of.rows * of.outputs, -1);
  std::vector<int> tiles;
  for (int tile = (of.rows - 1) / kWarpRows; tile >= 0; --tile)
    if (tile % gap != 0) tiles.push_back(tile);
  for (int row = 0; row < of.rows; ++row) needed[row] = row / kWarpRows % gap != 0 && row % 3 != 0;
  int count = int(tiles.size());
  p.needed = needed.data();
  p.needed_tiles = tiles.data();
  p.needed_count = &count;
  p.kept = nullptr;
  p.out = only.data();
  run();
  for (int i = 0; i < of.rows * of.outputs; ++i) {
    const int row = i / of.outputs;
    const double there = row / kWarpRows % gap == 0 ? -1 : needed[row] != 0 ? wanted[i] : 0;
    expect_near(only[i], there, 2e-3, "rows that are needed");
  }
}

}  // namespace

int main() {
  network<256>({150, 43, 256, 2, 3, 1, 1}, kHopper, 2, true);
  network<256>({33, 48, 256, 3, 8, 1, 1}, kHopper, 0, true);
  network<256>({260, 40, 256, 2, 1, 2, 2}, 130 * 1024, 0, false);  // fewer places than pieces
  network<256>({200, 40, 256, 2, 1, 1, 1}, 130 * 1024, 2, true);
  network<256>({65, 256, 256, 1, 3, 1, 1}, kHopper, 0, false);
  network<128>({400, 39, 128, 2, 3, 2, 1}, kHopper, 3, true);
  network<128>({1, 128, 128, 3, 3, 1, 1}, 120 * 1024, 0, false);
  network<128>({70, 20, 128, 6, 2, 1, 1}, kHopper, 0, true);  // any number of layers
  return failures ? 1 : 0;
}
