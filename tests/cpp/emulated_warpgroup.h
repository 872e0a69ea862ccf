// A stand-in for cuda/wgmma.cuh: barriers that count arrivals and bytes, copies and products that happen at once or,
// if `late`, when somebody waits for them. A product finds its right factor by what the descriptor says, in core
// matrices of 8 x 16 bytes.
#pragma once

#include "emulated_gpu.h"

#define NERF_WARPGROUPS

namespace emulated {

// d [16,8 tiles] = a [16,16] b, plus d where `add`: what a warp has of a warpgroup's product.
inline void multiply(float (*d)[4], int tiles, const uint32_t (&a)[4], uint64_t b, bool add) {
  using namespace nerf;
  auto& e = next_exchange();
  for (int r = 0; r < 4; ++r)
    for (int half = 0; half < 2; ++half) {
      const Element p = element_of_a(lane(), r, half);
      e.left[p.row][p.column] = widen(BFloat16{uint16_t(a[r] >> 16 * half)});
    }
  meet_warp();
  const auto field = [&](int bit) { return size_t(b >> bit & 0x3fff) * 16; };
  if (b >> 49) emulated::fail("descriptor: swizzled");
  const char* right = shared.data() + field(0);
  for (int t = 0; t < tiles; ++t)
    for (int c = 0; c < 4; ++c) {
      const Element p = element_of_c(lane(), c);
      float sum = add ? d[t][c] : 0.0f;
      for (int half = 0; half < 2; ++half) {
        BFloat16 x[8];
        memcpy(x, right + half * field(16) + t * field(32) + p.column * 16, sizeof x);
        for (int k = 0; k < 8; ++k) sum += e.left[p.row][8 * half + k] * widen(x[k]);
      }
      d[t][c] = sum;
    }
  meet_warp();  // no lane gives the right factor's place back before all have read
}

// d [16,8 tiles] += a^T b of a warp: both factors in blocks of 64 columns, as their descriptors say, or b of one tile in
// core matrices.
inline void multiply_stored(float (*d)[4], int tiles, uint64_t a, uint64_t b) {
  using namespace nerf;
  const auto number = [](uint64_t of, int k, int column) {
    const auto field = [&](int bit) { return size_t(of >> bit & 0x3fff) * 16; };
    BFloat16 x;
    if (of >> 49 == 0) {
      memcpy(&x, shared.data() + field(0) + k / 8 * field(16) + column / 8 * field(32) + column % 8 * 16 + k % 8 * 2,
             sizeof x);
      return widen(x);
    }
    if (of >> 62 != 1) { std::puts("descriptor: swizzled in another way"); std::exit(1); }
    size_t at = field(0) + column / 64 * field(16) + k / 8 * field(32) + k % 8 * 128 + column % 64 / 8 * 16;
    at ^= (at >> 7 & 7) << 4;  // by its address, wherever a block begins
    memcpy(&x, shared.data() + at + column % 8 * 2, sizeof x);
    return widen(x);
  };
  for (int c = 0; c < 4; ++c) {
    const Element p = element_of_c(lane(), c);
    float left[16];
    for (int k = 0; k < 16; ++k) left[k] = number(a, k, warp() % 4 * 16 + p.row);
    for (int t = 0; t < tiles; ++t)
      for (int k = 0; k < 16; ++k) d[t][c] += left[k] * number(b, k, t * 8 + p.column);
  }
}

using Products = std::vector<std::function<void()>>;
struct Queue { Products open; std::deque<Products> groups; };
inline std::vector<Queue> queues;  // of each thread

}  // namespace emulated


namespace nerf::cuda {

struct Barrier {
  int count, arrived, phase;
  std::vector<emulated::Copy> copies;  // of 16 bytes, on their way
};

inline uint32_t shared_address(const void* p) {
  return uint32_t(static_cast<const char*>(p) - emulated::shared.data());
}
inline void prepare_barrier(Barrier* b, int count) { *b = {count, 0, 0, {}}; }
inline void publish_writes() {
  if (emulated::queues.size() != emulated::threads.size()) emulated::queues.assign(emulated::threads.size(), {});
}

inline void end_phase(Barrier* b) {
  if (b->arrived < b->count) return;
  for (const auto& c : b->copies) emulated::perform(c);
  *b = {b->count, 0, b->phase + 1, {}};
}
inline void arrive(Barrier* b) {
  ++b->arrived;
  if (b->copies.empty()) end_phase(b);
}
inline void wait_for(Barrier* b, int parity) {
  emulated::rest_until([b, parity] {
    if (b->phase % 2 == parity) end_phase(b);
    return b->phase % 2 != parity;
  });
}
inline void copy_run(void* to, const void* from, int bytes, Barrier* b) {
  const auto misplaced = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; };
  if (misplaced(to) || misplaced(from) || bytes % 16) emulated::fail("bulk copy: no multiple of 16 bytes");
  for (int i = 0; i < bytes; i += 16) {
    const emulated::Copy c = {static_cast<char*>(to) + i, static_cast<const char*>(from) + i, true};
    if (emulated::late) b->copies.push_back(c);
    else emulated::perform(c);
  }
  arrive(b);
}

inline void wait_for_earlier() {}
inline void prefetch_run(const void*, int) {}

template <int kThreads>
void meet_first() {
  static emulated::Meeting first;
  emulated::meet(first, kThreads);
}

template <int kCount>
void keep_registers() {}
template <int kCount>
void take_registers() {}

inline void open_products() {}
inline void close_products() {
  auto& q = emulated::queues[threadIdx.x];
  q.groups.push_back(std::move(q.open));
  q.open.clear();
}
template <int kOpen>
void wait_for_products() {
  auto& groups = emulated::queues[threadIdx.x].groups;
  for (; int(groups.size()) > kOpen; groups.pop_front())
    for (const auto& product : groups.front()) product();
}
template <int kTiles>
void multiply_group(float (&d)[kTiles][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  const auto product = [&d, &a, b, add] { emulated::multiply(d, kTiles, a, b, add); };
  if (emulated::late) emulated::queues[threadIdx.x].open.push_back(product);
  else product();
}
template <int kTiles>
void multiply_stored(float (&d)[kTiles][4], uint64_t a, uint64_t b) {
  const auto product = [&d, a, b] { emulated::multiply_stored(d, kTiles, a, b); };
  if (emulated::late) emulated::queues[threadIdx.x].open.push_back(product);
  else product();
}
template <int kTiles>
void finish_products(float (&)[kTiles][4]) {
  wait_for_products<0>();
}
inline uint32_t round_relu_pair(float low, float high) {
  return round_pair(low < 0.0f ? 0.0f : low, high < 0.0f ? 0.0f : high);
}

}  // namespace nerf::cuda
