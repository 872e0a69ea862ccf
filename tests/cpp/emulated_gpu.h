// A block of threads on one core, so that kernels of tensor cores run under g++: each thread is a coroutine, and a
// warp's products follow the layout of fragment.h. Copies that nobody waits for happen at once or as late as they may,
// as `late` says.
#pragma once

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "math/bfloat16.h"
#include "math/fragment.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct uint4 { uint32_t x, y, z, w; };
struct uint2 { uint32_t x, y; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct Index { int x = 0, y = 0; };

namespace emulated {

struct Copy { void* to; const void* from; bool there; };
struct Condition { const void* of = nullptr; bool (*holds)(const void*) = nullptr; };
constexpr size_t kStack = 1 << 16;  // eight times what is used
struct Thread {
  ucontext_t start;
  void* place[5];  // where it goes on
  bool begun = false;
  std::unique_ptr<char[]> stack{new char[kStack]};
  Index index;
  Condition awaited;  // nothing, where holds is null
  std::deque<std::vector<Copy>> groups;
  std::vector<Copy> open;
};
struct Meeting { int arrived = 0; long turn = 0; };
struct Exchange { uint32_t in[32][8]; const void* address[32]; float left[16][16], sums[32][4]; };

inline std::vector<std::unique_ptr<Thread>> threads;
inline Thread* current;
inline Thread launcher;
inline bool late = true;
inline std::vector<char> shared;
inline std::vector<Meeting> warps;
inline std::vector<Exchange> exchanges;  // two of each warp
inline Meeting block;
inline std::function<void()> body;

// Not by exit, which would free the stack that this stands on.
[[noreturn]] inline void fail(const char* what) {
  std::puts(what);
  std::fflush(stdout);
  std::_Exit(1);
}

// swapcontext would ask the system for a mask of signals, and the sanitizer to clear its notes of a whole stack.
__attribute__((noinline, no_sanitize("address", "undefined"))) inline void change(Thread* from, Thread* to) {
  if (__builtin_setjmp(from->place)) return;
  if (to->begun) __builtin_longjmp(to->place, 1);
  to->begun = true;
  setcontext(&to->start);
}
// Goes on with the next thread, in a circle, that need not wait.
inline void switch_thread() {
  Thread* self = current;
  for (size_t i = 1; i <= threads.size(); ++i) {
    Thread* next = threads[(size_t(self->index.x) + i) % threads.size()].get();
    if (next->awaited.holds && !next->awaited.holds(next->awaited.of)) continue;
    current = next;
    if (next != self) change(self, next);
    return;
  }
  fail("every thread waits for another");
}
// The others look whether it holds before they switch to this thread: a switch takes far longer than a look.
template <class Holds>
void rest_until(const Holds& holds) {
  if (holds()) return;
  Thread* self = current;
  self->awaited = {&holds, [](const void* of) { return (*static_cast<const Holds*>(of))(); }};
  switch_thread();
  self->awaited = {};
}
// The last to come does at_end for all.
template <class AtEnd>
void meet(Meeting& m, int count, const AtEnd& at_end) {
  const long turn = m.turn;
  if (++m.arrived == count) { at_end(); m.arrived = 0; ++m.turn; return; }
  rest_until([&m, turn] { return m.turn != turn; });
}
inline void meet(Meeting& m, int count) { meet(m, count, [] {}); }
inline int warp() { return current->index.x / 32; }
inline int lane() { return current->index.x % 32; }
inline void meet_warp() { meet(warps[warp()], 32); }
// For what the lanes bring to their next meeting. The one behind it has the other: before the third all have read.
inline Exchange& next_exchange() { return exchanges[2 * warp() + warps[warp()].turn % 2]; }
inline void perform(const Copy& c) {
  if (c.there) memcpy(c.to, c.from, 16);
  else memset(c.to, 0, 16);
}

}  // namespace emulated

inline Index blockIdx, gridDim;
#define threadIdx (emulated::current->index)
#define SHARED_MEMORY(name) uint4* name = reinterpret_cast<uint4*>(emulated::shared.data())

inline void __syncthreads() { emulated::meet(emulated::block, int(emulated::threads.size())); }
inline void __syncwarp() { emulated::meet_warp(); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(int(bits)); }

template <class T>
T __ldg(const T* address) { return *address; }

namespace emulated {

// The value of another lane, to which every lane of the warp brings its own.
template <class T>
T value_of(int other, T value) {
  auto& e = next_exchange();
  memcpy(e.in[lane()], &value, sizeof value);
  meet_warp();
  T found;
  memcpy(&found, e.in[other], sizeof found);
  return found;
}

}  // namespace emulated

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) { return emulated::value_of(emulated::lane() ^ mask, value); }

template <class T>
T __shfl_sync(unsigned, T value, int from, int width = 32) {
  return emulated::value_of(emulated::lane() / width * width + from % width, value);
}

// A lane from which there is none keeps its own.
template <class T>
T __shfl_up_sync(unsigned, T value, int distance, int width = 32) {
  const int lane = emulated::lane();
  return emulated::value_of(lane % width < distance ? lane : lane - distance, value);
}
template <class T>
T __shfl_down_sync(unsigned, T value, int distance, int width = 32) {
  const int lane = emulated::lane();
  return emulated::value_of(lane % width + distance < width ? lane + distance : lane, value);
}

inline unsigned __ballot_sync(unsigned, bool condition) {
  auto& e = emulated::next_exchange();
  e.in[emulated::lane()][0] = condition;
  emulated::meet_warp();
  unsigned lanes = 0;
  for (int lane = 0; lane < 32; ++lane) lanes |= e.in[lane][0] << lane;
  return lanes;
}
inline bool __any_sync(unsigned all, bool condition) { return __ballot_sync(all, condition) != 0; }

inline void atomicAdd(float* address, float value) { *address += value; }

namespace nerf::cuda {

// A warp's product, from what its lanes brought.
inline void multiply_exchanged(emulated::Exchange& e) {
  float left[16][16], right[16][8];
  for (int lane = 0; lane < 32; ++lane)
    for (int half = 0; half < 2; ++half) {
      const auto number = [&](int i) { return widen(BFloat16{uint16_t(e.in[lane][i] >> 16 * half)}); };
      for (int r = 0; r < 4; ++r) {
        const Element p = element_of_a(lane, r, half);
        left[p.row][p.column] = number(r);
      }
      for (int r = 0; r < 2; ++r) {
        const Element p = element_of_b(lane, r, half);
        right[p.row][p.column] = number(4 + r);
      }
    }
  for (int lane = 0; lane < 32; ++lane)
    for (int c = 0; c < 4; ++c) {
      const Element p = element_of_c(lane, c);
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += left[p.row][k] * right[k][p.column];
      e.sums[lane][c] = sum;
    }
}
inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  auto& e = emulated::next_exchange();
  uint32_t* mine = e.in[emulated::lane()];
  for (int i = 0; i < 4; ++i) mine[i] = a[i];
  mine[4] = b0;
  mine[5] = b1;
  emulated::meet(emulated::warps[emulated::warp()], 32, [&e] { multiply_exchanged(e); });
  for (int c = 0; c < 4; ++c) d[c] += e.sums[emulated::lane()][c];
}

inline void exchange_matrices(uint32_t (&r)[4], const BFloat16* row, bool transposed) {
  auto& e = emulated::next_exchange();
  if (reinterpret_cast<uintptr_t>(row) % 16) emulated::fail("ldmatrix: address is no multiple of 16");
  e.address[emulated::lane()] = row;
  emulated::meet_warp();
  const int lane = emulated::lane();
  for (int j = 0; j < 4; ++j) {
    uint16_t halves[2];
    for (int half = 0; half < 2; ++half) {
      // Lane g * 4 + t holds row g, columns 2 t and 2 t + 1 (PTX ISA, ldmatrix); transposed, of the transposed matrix.
      const int row_of = transposed ? lane % 4 * 2 + half : lane / 4;
      const int column = transposed ? lane / 4 : lane % 4 * 2 + half;
      memcpy(&halves[half], static_cast<const uint16_t*>(e.address[j * 8 + row_of]) + column, 2);
    }
    r[j] = uint32_t(halves[0]) | uint32_t(halves[1]) << 16;
  }
  emulated::meet_warp();  // no lane writes there before all have read
}
inline void load_matrices(uint32_t (&r)[4], const BFloat16* row) { exchange_matrices(r, row, false); }
inline void load_transposed(uint32_t (&r)[4], const BFloat16* row) { exchange_matrices(r, row, true); }

inline void copy_later(void* to, const void* from, bool there = true) {
  const auto misplaced = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; };
  if (misplaced(to) || misplaced(from)) emulated::fail("cp.async: address is no multiple of 16");
  if (emulated::late) emulated::current->open.push_back({to, from, there});
  else emulated::perform({to, from, there});
}
inline void end_group() {
  emulated::current->groups.push_back(std::move(emulated::current->open));
  emulated::current->open.clear();
}
template <int kOpen>
void wait_for_copies() {
  auto& groups = emulated::current->groups;
  for (; int(groups.size()) > kOpen; groups.pop_front())
    for (const auto& c : groups.front()) emulated::perform(c);
}
inline void let_next_start() {}
inline uint32_t round_pair(float low, float high) {
  return uint32_t(narrow<BFloat16>(low).bits) | uint32_t(narrow<BFloat16>(high).bits) << 16;
}

}  // namespace nerf::cuda

namespace emulated {

inline size_t shared_bytes;
inline Meeting ended;

inline void begin_block() {
  shared.assign(shared_bytes, char(0x7f));  // bfloat16 numbers that show
  warps.assign((threads.size() + 31) / 32, {});
  exchanges.resize(2 * warps.size());
  block = {};
}

// A thread of all blocks, one after the other: to make its context anew takes longer than many a kernel. Who ends a
// block last begins the next.
inline void enter() {
  for (;;) {
    body();
    current->groups.clear();
    current->open.clear();
    if (ended.arrived + 1 == int(threads.size())) {
      if (++blockIdx.x == gridDim.x) blockIdx.x = 0, ++blockIdx.y;
      if (blockIdx.y == gridDim.y) change(current, &launcher);
      begin_block();
    }
    meet(ended, int(threads.size()));
  }
}

inline void prepare(Thread& t, int index) {
  t.index = {index, 0};
  getcontext(&t.start);
  t.start.uc_stack.ss_sp = t.stack.get();
  t.start.uc_stack.ss_size = kStack;
  makecontext(&t.start, enter, 0);
}

// kernel() for every thread of every block.
inline void launch(Index grid, int count, int bytes, const std::function<void()>& kernel) {
  gridDim = grid;
  if (grid.x == 0 || grid.y == 0) return;
  body = kernel;
  shared_bytes = size_t(bytes) + 64;
  threads.clear();
  for (int i = 0; i < count; ++i) prepare(*threads.emplace_back(std::make_unique<Thread>()), i);
  blockIdx = {0, 0};
  ended = {};
  launcher.begun = true;
  begin_block();
  current = threads[0].get();
  change(&launcher, current);
}

}  // namespace emulated
