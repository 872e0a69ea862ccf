// mlp forward on Hopper: a warpgroup takes a tile of rows through all layers in its registers. The sums of a layer,
// once rounded, lie as the next product wants its left factor, so that shared memory is for weights: those that find
// a place stay for all of a block's tiles, the rest pass through a ring. Streamed whole, they would ask more of the
// L2 cache than it gives. The includer brings wgmma.cuh, or a stand-in for it (tests/cpp).
#pragma once

#include "mlp_plan.cuh"

namespace nerf::cuda {

constexpr int kMaxPlaces = 24;  // pieces of weights in shared memory
constexpr int kRing = 4;        // of these, where not all can stay, for those that pass through
constexpr int kGroupWarps = 4;  // of a warpgroup

// A block's warpgroups that make products, and one more, which fetches weights and leaves most of its registers to
// them: of 256 columns a thread holds 128 sums, and its values, two in a register, in 64 more.
template <int kWidth>
struct Groups {
  static constexpr int kCount = kWidth == 256 ? 2 : 3, kThreadCount = (kCount + 1) * kGroupWarps * 32;
  static constexpr int kRegisters = kWidth == 256 ? 240 : 160, kLeft = kWidth == 256 ? 24 : 32;
  static_assert((kCount * kRegisters + kLeft) * kGroupWarps * 32 <= 65536, "of a processor");
};

// Numbers from row to row of the inputs in shared memory.
HOST_DEVICE int inputs_pitch(const MlpPlan& p) { return int(p.first_depth()) + kGap; }

template <int kWidth>
int mlp_warpgroups_bytes(const MlpPlan& p) {
  const int inputs = Groups<kWidth>::kCount * kWarpRows * inputs_pitch(p);
  return ((p.resident + p.ring) * kStep * kWidth + inputs) * int(sizeof(BFloat16));
}

// Shares out what is free of a block's shared memory among a number of pieces of weights. False: it is too little.
template <int kWidth>
bool place_weights(MlpPlan& p, int free_bytes, int64_t pieces) {
  constexpr int kPiece = kStep * kWidth * int(sizeof(BFloat16)), kBarriers = 2 * kMaxPlaces * int(sizeof(uint64_t));
  const int free = (free_bytes - kBarriers) / kPiece, places = free < kMaxPlaces ? free : kMaxPlaces;
  p.pieces = int(pieces);
  p.ring = p.pieces <= places ? 0 : kRing;
  p.resident = p.pieces <= places ? p.pieces : places - kRing;
  return p.resident >= 0;
}

// The same for the forward kernel.
template <int kWidth>
void place_weights(MlpPlan& p, int shared_bytes) {
  p.resident = p.ring = 0;
  place_weights<kWidth>(p, shared_bytes - mlp_warpgroups_bytes<kWidth>(p), p.forward_pieces());
}

#ifdef NERF_WARPGROUPS

// Goes round and round the pieces, and knows where in shared memory each is.
struct PieceCursor {
  int piece = 0;
  int turn = 0, parity = 0;  // place in the ring, and whether an odd number of pieces was there before

  __device__ int place(const MlpPlan& p) const { return piece < p.resident ? piece : p.resident + turn; }
  __device__ bool stays(const MlpPlan& p) const { return piece < p.resident; }
  __device__ void advance(const MlpPlan& p) {
    if (!stays(p) && ++turn == p.ring) {
      turn = 0;
      parity ^= 1;
    }
    if (++piece == p.pieces) piece = 0;
  }
};

// Pieces of weights in shared memory. A warp takes one after the other, and gives each back when its products have
// ended.
template <int kWidth>
struct PieceQueue {
  static constexpr int kPiece = kStep * kWidth;  // numbers
  const MlpPlan& p;
  BFloat16* memory;
  Barrier *full, *empty;  // of each place
  PieceCursor next = {}, done = {};

  // By one thread: all pieces, and those that do not stay again in every pass.
  __device__ void fill(int64_t passes) {
    for (int64_t left = passes * p.pieces; left > 0; --left) {
      const int place = next.place(p);
      const bool stays = next.stays(p);
      if (!stays) wait_for(empty + place, next.parity ^ 1);
      if (!stays || left > (passes - 1) * p.pieces)
        copy_run(memory + place * kPiece, p.packed + int64_t(next.piece) * kPiece, kPiece * int(sizeof(BFloat16)),
                 full + place);
      next.advance(p);
    }
  }
  // The descriptor of the next piece's first half, when it is there. A place of a piece that stays has one phase.
  __device__ uint64_t take() {
    const int place = next.place(p);
    wait_for(full + place, next.stays(p) ? 0 : next.parity);
    next.advance(p);
    return describe_cores(shared_address(memory + place * kPiece));
  }
  __device__ void give_back() {
    if (!done.stays(p) && threadIdx.x % 32 == 0) arrive(empty + done.place(p));
    done.advance(p);
  }
};

// From a piece's first half to its second: a descriptor counts 16 bytes.
template <int kWidth>
constexpr uint64_t kHalfPiece = 16 * kWidth * sizeof(BFloat16) / 16;

// A warp's 16 rows of the inputs, rounded, zeros beyond them; 64 columns of them, two a lane, on their way from memory.
struct InputColumns {
  float numbers[16][2];

  __device__ __forceinline__ void ask(const MlpPlan& p, int64_t first, int start) {
    const int count = p.inputs_count, column = start + int(threadIdx.x % 32) * 2;
#pragma unroll
    for (int row = 0; row < 16; ++row) {
      const float* number = p.inputs + (first + row) * count + column;
      const bool there = first + row < p.rows;
      numbers[row][0] = there && column < count ? number[0] : 0.0f;
      numbers[row][1] = there && column + 1 < count ? number[1] : 0.0f;
    }
  }
  __device__ __forceinline__ void store(BFloat16* x, const MlpPlan& p, int start) const {
    const int column = start + int(threadIdx.x % 32) * 2, pitch = inputs_pitch(p);
    if (column >= p.first_depth()) return;
#pragma unroll
    for (int row = 0; row < 16; ++row)
      *reinterpret_cast<uint32_t*>(x + row * pitch + column) = round_pair(numbers[row][0], numbers[row][1]);
  }
};

// Those from column `start` on.
__device__ __forceinline__ void load_inputs(BFloat16* x, const MlpPlan& p, int64_t first, int start = 0) {
  for (; start < p.first_depth(); start += 64) {
    InputColumns columns;
    columns.ask(p, first, start);
    columns.store(x, p, start);
  }
}

// sums = x W of the first layer; x: the warp's rows in shared memory.
template <int kWidth>
__device__ __forceinline__ void multiply_inputs(float (&sums)[kWidth / 8][4], const BFloat16* x,
                                                PieceQueue<kWidth>& weights) {
  const int lane = int(threadIdx.x % 32), pieces = int(weights.p.first_depth()) / kStep;
  const BFloat16* own = x + lane % 16 * inputs_pitch(weights.p) + lane / 16 * 8;
  for (int piece = 0; piece < pieces; ++piece) {
    uint32_t a[2][4];
    load_matrices(a[0], own + piece * kStep);
    load_matrices(a[1], own + piece * kStep + 16);
    const uint64_t b = weights.take();
    open_products();
    multiply_group(sums, a[0], b, piece > 0);
    multiply_group(sums, a[1], b + kHalfPiece<kWidth>, true);
    close_products();
    finish_products(sums);
    weights.give_back();
  }
}

// sums = x W of a hidden layer. keep(i) stores columns 32 i and on of x, once no product holds them and while others run.
template <int kWidth, class Keep>
__device__ __forceinline__ void multiply_hidden(float (&sums)[kWidth / 8][4], const uint32_t (&x)[kWidth / 16][4],
                                                PieceQueue<kWidth>& weights, const Keep& keep) {
#pragma unroll
  for (int piece = 0; piece < kWidth / kStep; ++piece) {
    const uint64_t b = weights.take();
    open_products();
    multiply_group(sums, x[2 * piece], b, piece > 0);
    multiply_group(sums, x[2 * piece + 1], b + kHalfPiece<kWidth>, true);
    close_products();
    if (piece > 0) {
      wait_for_products<1>();  // those of the piece before
      weights.give_back();
      keep(piece - 1);
    }
  }
  finish_products(sums);
  weights.give_back();
  keep(kWidth / kStep - 1);
}

// x = relu(sums + bias), rounded; bias: from the thread's first column on.
template <int kWidth>
__device__ __forceinline__ void activate(uint32_t (&x)[kWidth / 16][4], const float (&sums)[kWidth / 8][4],
                                         const float* bias) {
#pragma unroll
  for (int t = 0; t < kWidth / 8; ++t) {  // columns of the layer: in_layer
    const float2 b = *reinterpret_cast<const float2*>(bias + t / 4 * 32 + t % 4 * 2);
    x[t / 2][t % 2 * 2] = round_relu_pair(sums[t][0] + b.x, sums[t][1] + b.y);
    x[t / 2][t % 2 * 2 + 1] = round_relu_pair(sums[t][2] + b.x, sums[t][3] + b.y);
  }
}

// The last layer, of a warp's 16 rows: two parts of its sums.
template <int kWidth>
__device__ __forceinline__ void multiply_last(float (&sums)[2][4], const uint32_t (&x)[kWidth / 16][4],
                                              const MlpPlan& p) {
  const BFloat16* packed = p.packed + p.forward_pieces() * kStep * kWidth + threadIdx.x % 32 * 4;
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    const uint2 b = *reinterpret_cast<const uint2*>(packed + step * 128);
    multiply_add(sums[step % 2], x[step], b.x, b.y);
  }
}

#endif

template <int kWidth>
__global__ void __launch_bounds__(Groups<kWidth>::kThreadCount, 1) mlp_warpgroups_kernel(MlpPlan p) {
#ifdef NERF_WARPGROUPS
  SHARED_MEMORY(memory);
  __shared__ Barrier full[kMaxPlaces], empty[kMaxPlaces];
  const int places = p.resident + p.ring, warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32);
  if (threadIdx.x == 0) {
    for (int place = 0; place < places; ++place) {
      prepare_barrier(full + place, 1);
      prepare_barrier(empty + place, Groups<kWidth>::kCount * kGroupWarps);
    }
    publish_writes();
  }
  __syncthreads();
  wait_for_earlier();  // which packed the weights and counted the tiles
  const int64_t tiles = p.needed_tiles ? *p.needed_count : (p.rows + kWarpRows - 1) / kWarpRows;
  if (int64_t(blockIdx.x) >= tiles) return;
  const int64_t passes = (tiles - 1 - blockIdx.x) / (int64_t(gridDim.x) * Groups<kWidth>::kCount) + 1;
  BFloat16* pieces = reinterpret_cast<BFloat16*>(memory);
  PieceQueue<kWidth> weights{p, pieces, full, empty};
  if (warp >= Groups<kWidth>::kCount * kGroupWarps) {
    keep_registers<Groups<kWidth>::kLeft>();
    if (warp % kGroupWarps == 0 && lane == 0) weights.fill(passes);
    return;
  }
  take_registers<Groups<kWidth>::kRegisters>();
  BFloat16* inputs = pieces + places * weights.kPiece + warp * 16 * inputs_pitch(p);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t tile = blockIdx.x + (pass * Groups<kWidth>::kCount + warp / kGroupWarps) * gridDim.x;
    if (tile >= tiles) {  // the block's last pass: others wait until this warp has been through too
      for (int piece = 0; piece < p.pieces; ++piece) {
        weights.take();
        weights.give_back();
      }
      return;
    }
    const int64_t first = (p.needed_tiles ? p.needed_tiles[tile] : tile) * kWarpRows + warp % kGroupWarps * 16;
    load_inputs(inputs, p, first);
    __syncwarp();
    float sums[kWidth / 8][4];
    uint32_t x[kWidth / 16][4];
    multiply_inputs<kWidth>(sums, inputs, weights);
    __syncwarp();  // inputs are free
    const int64_t row = first + lane / 4;
    const int column = lane % 4 * 8;
    const bool keeps[2] = {p.kept && row < p.rows, p.kept && row + 8 < p.rows};
    int layer = 0;
    const auto keep = [&](int i) {
      const uint32_t(&a)[4] = x[2 * i], (&b)[4] = x[2 * i + 1];
      uint4* to = reinterpret_cast<uint4*>(p.kept + (layer * p.rows + row) * kWidth + column + i * 32);
      if (keeps[0]) to[0] = uint4{a[0], a[2], b[0], b[2]};
      if (keeps[1]) to[kWidth] = uint4{a[1], a[3], b[1], b[3]};  // 8 rows of kWidth / 8
    };
    activate<kWidth>(x, sums, p.params + p.bias_at(0) + column);
    while (layer + 1 < p.layers) {
      multiply_hidden<kWidth>(sums, x, weights, keep);
      ++layer;
      activate<kWidth>(x, sums, p.params + p.bias_at(layer) + column);
    }
#pragma unroll
    for (int i = 0; i < kWidth / kStep; ++i) keep(i);
    float last[2][4] = {};
    multiply_last<kWidth>(last, x, p);
    const float* bias = p.params + p.bias_at(p.layers);
    for (int c = 0; c < 4; ++c) {
      const Element e = element_of_c(lane, c);
      const int64_t to = first + e.row;
      if (to >= p.rows || e.column >= p.outputs) continue;
      const bool needed = !p.needed || p.needed[to] != 0.0f;
      p.out[to * p.outputs + e.column] = needed ? last[0][c] + last[1][c] + bias[e.column] : 0.0f;
    }
  }
#endif
}

}  // namespace nerf::cuda
