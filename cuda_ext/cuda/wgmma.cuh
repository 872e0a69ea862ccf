// Hopper's products by a warpgroup, four warps at once, and what feeds them: barriers in shared memory, and copies
// that report to one. They are compiled for sm_90a alone, which NERF_WARPGROUPS then says: no GPU before or after it
// has these products.
#pragma once

#include "mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NERF_WARPGROUPS

namespace nerf::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// A barrier in shared memory. A phase ends when `count` have arrived and all bytes that were announced are there.
// Phases count from 0, and their parity names them.
using Barrier = uint64_t;

__device__ __forceinline__ void prepare_barrier(Barrier* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

// Makes known to products and bulk copies what this thread has written to shared memory: barriers, numbers, and its
// copies that have ended. Other threads need a barrier of the block too.
__device__ __forceinline__ void publish_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Waits until the phase of that parity has ended. The phase before the first counts as ended.
__device__ __forceinline__ void wait_for(Barrier* barrier, int parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (!ended);
}

// A run of global memory to shared memory: arrives at the barrier, whose phase ends when all bytes are there. Both
// places and the size are multiples of 16 bytes.
__device__ __forceinline__ void copy_run(void* shared, const void* global, int bytes, Barrier* barrier) {
  const uint32_t at = shared_address(barrier);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(at)
               : "memory");
}

// Asks for a run of global memory, so that it is in the L2 cache soon. Place and size are multiples of 16 bytes.
__device__ __forceinline__ void prefetch_run(const void* global, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// Waits until the kernels before have ended, and what they wrote is there, for one that was launched to start early.
__device__ __forceinline__ void wait_for_earlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// A barrier for the block's first kThreads threads.
template <int kThreads>
__device__ __forceinline__ void meet_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// How many registers each thread of a warpgroup has from here on: fewer, which others may have, or more, when there
// are any.
template <int kCount>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Before a warpgroup's first product, and whenever a register of one that follows was written otherwise.
__device__ __forceinline__ void open_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes a group of products.
__device__ __forceinline__ void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most kOpen groups are at work.
template <int kOpen>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}

// Operands of a statement: the sums of 8 tiles of 8 columns, and their names in it.
#define NERF_SUMS(t) "+f"(d[t][0]), "+f"(d[t][1]), "+f"(d[t][2]), "+f"(d[t][3])
#define NERF_SUMS_8(t)                                                                                      \
  NERF_SUMS(t), NERF_SUMS(t + 1), NERF_SUMS(t + 2), NERF_SUMS(t + 3), NERF_SUMS(t + 4), NERF_SUMS(t + 5), \
      NERF_SUMS(t + 6), NERF_SUMS(t + 7)
#define NERF_NAMES_0                                                                                               \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31"
#define NERF_NAMES_8                                                                                              \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58," \
  "%59,%60,%61,%62,%63"
#define NERF_NAMES_16                                                                                             \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90," \
  "%91,%92,%93,%94,%95"
#define NERF_NAMES_24                                                                                             \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117," \
  "%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// d = a b, plus d where `add`; a: this warp's 16 rows of 64; b: a descriptor. Nobody touches a and d before it has
// ended.
__device__ __forceinline__ void multiply_group(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NERF_NAMES_0
      "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n"
      "}"
      : NERF_SUMS_8(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void multiply_group(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NERF_NAMES_0 "," NERF_NAMES_8
      "}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n"
      "}"
      : NERF_SUMS_8(0), NERF_SUMS_8(8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void multiply_group(float (&d)[32][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %133, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NERF_NAMES_0 "," NERF_NAMES_8 "," NERF_NAMES_16
      "," NERF_NAMES_24
      "}, {%128,%129,%130,%131}, %132, p, 1, 1, 0;\n"
      "}"
      : NERF_SUMS_8(0), NERF_SUMS_8(8), NERF_SUMS_8(16), NERF_SUMS_8(24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}

// d += a^T b; a and b: descriptors of blocks (describe_blocks), or b of core matrices, where d has eight columns.
__device__ __forceinline__ void multiply_stored(float (&d)[1][4], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 1, 0;\n"
               : NERF_SUMS(0)
               : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_stored(float (&d)[16][4], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NERF_NAMES_0 "," NERF_NAMES_8
               "}, %64, %65, 1, 1, 1, 1, 1;\n"
               : NERF_SUMS_8(0), NERF_SUMS_8(8)
               : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_stored(float (&d)[32][4], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NERF_NAMES_0 "," NERF_NAMES_8 "," NERF_NAMES_16
               "," NERF_NAMES_24 "}, %128, %129, 1, 1, 1, 1, 1;\n"
               : NERF_SUMS_8(0), NERF_SUMS_8(8), NERF_SUMS_8(16), NERF_SUMS_8(24)
               : "l"(a), "l"(b));
}

#undef NERF_SUMS
#undef NERF_SUMS_8
#undef NERF_NAMES_0
#undef NERF_NAMES_8
#undef NERF_NAMES_16
#undef NERF_NAMES_24

// The sums, once all products have ended: the compiler must not read them before.
template <int kTiles>
__device__ __forceinline__ void finish_products(float (&d)[kTiles][4]) {
  wait_for_products<0>();
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int c = 0; c < 4; ++c) asm volatile("" : "+f"(d[t][c])::"memory");
}

// Two numbers rounded to bfloat16, the first in the lower bits, 0 where they are negative; NaN stays NaN.
__device__ __forceinline__ uint32_t round_relu_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace nerf::cuda

#endif
