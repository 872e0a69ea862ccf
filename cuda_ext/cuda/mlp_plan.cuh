// What the kernels of mlp.cu share: sizes, where things are, and weights packed once per call in the order in which lanes hold them.
// The includer brings mma.cuh, or a stand-in for it (tests/cpp).
#pragma once

#include "../math/fragment.h"
#include "../math/mlp.h"

namespace nerf::cuda {

constexpr int kColumnWarps = 4;   // warps beside each other
constexpr int kWarpRows = 64;     // rows of a warp's tile
constexpr int kStep = 32;         // depth of a piece of weights: two products
constexpr int kChunk = 64;        // columns of the inputs that a warpgroup makes at once
constexpr int kMaxOutputs = 8;    // columns of one product
constexpr int kGap = 8;           // numbers behind a row in shared memory: rows in different banks

// Kernels that mlp.cu never starts on a generation are compiled empty for it: before sm_80 all that take products, and on
// Hopper, which has room for large tiles of every width, the backward one of small tiles. Not in PTX: others run that, too.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kHasProducts = false;
#else
constexpr bool kHasProducts = true;
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kHasRoom = true;
#else
constexpr bool kHasRoom = false;
#endif
constexpr int kSharedBytesOfHopper = 227 << 10;  // of a block

HOST_DEVICE int64_t round_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

HOST_DEVICE float relu(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays NaN

// What the kernels of one call share: places in the packed weights and sizes.
struct MlpPlan {
  const float *inputs, *params, *needed;  // needed: [N] or null
  int64_t rows;
  int *needed_tiles, *needed_count;  // the tiles that have a row that is needed, in any order; null: all are computed
  int inputs_count, width, layers, outputs, grad_columns;
  bool by_warpgroups;      // the kernel is one of warpgroups (mlp_warpgroups.cuh), and weights are packed for it
  int pieces, resident, ring;  // its pieces of weights; those that stay in shared memory; places there for the others
  const BFloat16* packed;  // see pack_weights
  BFloat16* kept;          // [L,N,W] or null
  float* out;
  const float* grad_out;
  float *grad_inputs, *grad_params;
  BFloat16* grads;     // [L-1,N,W]: gradients of the values before ReLU, of layer 1 and on
  float* slots;        // [blocks, slot_size()]: each block's sums of gradients of W_0, all biases, W_L
  float* parts;        // [splits, L-1, W, W]: each split's sums of the gradients of W_1 ... W_{L-1}
  int blocks, splits;

  HOST_DEVICE int64_t fan_in(int l) const { return l == 0 ? inputs_count : width; }
  HOST_DEVICE int64_t fan_out(int l) const { return l == layers ? outputs : width; }
  HOST_DEVICE int64_t weight_at(int l) const {
    return l == 0 ? 0 : int64_t(inputs_count + 1) * width + int64_t(l - 1) * (width + 1) * width;
  }
  HOST_DEVICE int64_t bias_at(int l) const { return weight_at(l) + fan_in(l) * fan_out(l); }
  HOST_DEVICE int64_t size() const { return bias_at(layers) + outputs; }
  HOST_DEVICE int64_t first_depth() const { return round_up(inputs_count, kStep); }
  HOST_DEVICE int64_t input_columns() const { return round_up(inputs_count, 16); }
  // Packed weights, forward: pieces of layers 0 ... L-1, then the last layer's [W,8]. Backward: pieces of layers L ... 1, then the
  // first layer's: [W,input_columns()], for warpgroups pieces too, two for 64 columns of the inputs.
  HOST_DEVICE int64_t forward_pieces() const { return (first_depth() + int64_t(layers - 1) * width) / kStep; }
  HOST_DEVICE int64_t backward_pieces() const { return 1 + int64_t(layers - 1) * width / kStep; }
  HOST_DEVICE int64_t forward_size() const { return forward_pieces() * kStep * width + width * kMaxOutputs; }
  HOST_DEVICE int64_t input_pieces() const { return (inputs_count + kChunk - 1) / kChunk * 2; }
  HOST_DEVICE int64_t backward_size() const {
    return by_warpgroups ? (backward_pieces() + input_pieces()) * kStep * width
                         : backward_pieces() * kStep * width + width * input_columns();
  }
  // A slot: W_0, biases of hidden layers [L,W], W_L, b_L [8]. Weights are as lanes hold them, so that a warp adds whole
  // runs of memory: of W_0 32 rows after the other, of these 16 columns after the other, four tiles [16,8]; of W_L, whose
  // columns are the rows of these tiles, one after the other. Some of their places stand for no weight.
  HOST_DEVICE int64_t slot_bias(int l) const { return width * input_columns() + int64_t(l) * width; }
  HOST_DEVICE int64_t slot_last() const { return slot_bias(layers); }
  HOST_DEVICE int64_t slot_last_bias() const { return slot_last() + int64_t(width) * kMaxOutputs; }
  HOST_DEVICE int64_t slot_size() const { return slot_last_bias() + kMaxOutputs; }
  // Where a number of a slot belongs in params, -1: nowhere.
  HOST_DEVICE int64_t place_of_slot(int64_t i) const {
    const auto of_lanes = [](int64_t at) { return element_of_c(int(at / 4 % 32), int(at % 4)); };
    if (i < slot_bias(0)) {
      const Element e = of_lanes(i);
      const int64_t tile = i / 128, pairs = input_columns() / 16;
      const int64_t row = tile / 4 / pairs * 32 + tile / 2 % 2 * 16 + e.row;
      const int64_t column = tile / 4 % pairs * 16 + tile % 2 * 8 + e.column;
      return column < inputs_count ? row * inputs_count + column : -1;
    }
    if (i < slot_last()) {
      const int64_t b = i - slot_bias(0);
      return bias_at(int(b / width)) + b % width;
    }
    if (i < slot_last_bias()) {
      const int64_t at = i - slot_last(), row = at / 128 * 16 + of_lanes(at).row, column = of_lanes(at).column;
      return column < outputs ? weight_at(layers) + column * width + row : -1;
    }
    return i < slot_last_bias() + outputs ? bias_at(layers) + i - slot_last_bias() : -1;
  }
};

// The weight at a place of the packed weights, before rounding. Places have 32 bits, as quotients of 64 take long.
__device__ inline float packed_forward(const MlpPlan& p, uint32_t place) {
  const uint32_t first = uint32_t(p.first_depth()) * p.width, hidden = uint32_t(p.width) * p.width;
  const uint32_t last = uint32_t(p.forward_pieces()) * kStep * p.width;
  if (place >= last) {
    const uint32_t i = place - last;  // tiles of 8 columns, one behind the other
    const Element e = element_of_b(int(i / 4 % 32), int(i / 2 % 2), int(i % 2));
    const int row = int(i / 128) * 16 + e.row, k = p.by_warpgroups ? in_layer(row) : row;
    return e.column < p.outputs ? p.params[p.weight_at(p.layers) + e.column * p.width + k] : 0.0f;
  }
  const int layer = place < first ? 0 : 1 + int((place - first) / hidden);
  const uint32_t within = layer == 0 ? place : (place - first) % hidden;
  Element e = p.by_warpgroups ? element_of_cores(within, p.width) : element_of_packed(within, p.width);
  if (p.by_warpgroups) e = {layer == 0 ? e.row : in_layer(e.row), in_layer(e.column)};
  return e.row < p.fan_in(layer) ? p.params[p.weight_at(layer) + e.column * p.fan_in(layer) + e.row] : 0.0f;
}

__device__ inline float packed_backward(const MlpPlan& p, uint32_t place) {
  const uint32_t first = uint32_t(kStep) * p.width, hidden = uint32_t(p.width) * p.width;
  const uint32_t inputs = uint32_t(p.backward_pieces()) * kStep * p.width;
  if (place >= inputs) {
    const uint32_t within = place - inputs, chunk = uint32_t(kChunk) * p.width;
    Element e;
    if (p.by_warpgroups) {
      const Element of = element_of_cores(within % chunk, kChunk);
      e = {in_layer(of.row), int(within / chunk) * kChunk + of.column};
    } else {
      e = element_of_packed(within, int(p.input_columns()));
    }
    return e.column < p.inputs_count ? p.params[int64_t(e.row) * p.inputs_count + e.column] : 0.0f;
  }
  const uint32_t within = place < first ? place : (place - first) % hidden;
  Element e = p.by_warpgroups ? element_of_cores(within, p.width) : element_of_packed(within, p.width);
  if (p.by_warpgroups) e = {place < first ? e.row : in_layer(e.row), in_layer(e.column)};
  if (place < first)
    return e.row < p.outputs ? p.params[p.weight_at(p.layers) + int64_t(e.row) * p.width + e.column] : 0.0f;
  const int layer = p.layers - 1 - int((place - first) / hidden);
  return p.params[p.weight_at(layer) + int64_t(e.row) * p.width + e.column];
}

template <bool kBackward>
__global__ void __launch_bounds__(256) pack_weights(MlpPlan p, BFloat16* packed) {
  let_next_start();
  const uint32_t pair = uint32_t(blockIdx.x) * 256 + threadIdx.x, place = 2 * pair;
  if (place >= (kBackward ? p.backward_size() : p.forward_size())) return;
  const float low = kBackward ? packed_backward(p, place) : packed_forward(p, place);
  const float high = kBackward ? packed_backward(p, place + 1) : packed_forward(p, place + 1);
  reinterpret_cast<uint32_t*>(packed)[pair] = round_pair(low, high);
}

}  // namespace nerf::cuda
