// Products of bfloat16 matrices by a warp, with float32 sums, and copies into shared memory that nobody waits for: sm_80 and up.
#pragma once

#include "../math/bfloat16.h"
#include "launch.cuh"
#include "round_pair.cuh"

// The memory that a launch gives a block.
#define SHARED_MEMORY(name) extern __shared__ uint4 name[]

namespace nerf::cuda {

// d += a b, m16n8k16; which lane holds what: ../math/fragment.h.
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Four 8x8 matrices of 16-bit numbers from shared memory; lanes 8 j ... 8 j + 7 give the addresses of the rows of matrix j.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const BFloat16* row) {
#if __CUDA_ARCH__ >= 800
  const uint32_t address = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#endif
}

// The same, each matrix transposed.
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], const BFloat16* row) {
#if __CUDA_ARCH__ >= 800
  const uint32_t address = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#endif
}

// 16 bytes from global to shared memory, zeros where there are none; there after wait_for_copies.
__device__ __forceinline__ void copy_later(void* shared, const void* global, bool there = true) {
#if __CUDA_ARCH__ >= 800
  const uint32_t address = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(there ? 16 : 0)
               : "memory");
#endif
}

// Closes a group of copies.
__device__ __forceinline__ void end_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kOpen of this thread's groups are on their way. Other threads' copies need a barrier too.
template <int kOpen>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
#endif
}

// The next kernel may start now, if it was launched so: it waits by itself before it reads what this one writes.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace nerf::cuda
