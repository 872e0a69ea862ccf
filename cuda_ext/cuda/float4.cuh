// Four floats at a time, and sums of such that are stored as bfloat16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "../math/bfloat16.h"

namespace nerf::cuda {

// Adds atomically, from sm_90 on as one 16-byte reduction.
inline __device__ void add_float4(float4* target, float4 value) {
#if __CUDA_ARCH__ >= 900
  atomicAdd(target, value);
#else
  float* t = reinterpret_cast<float*>(target);
  atomicAdd(t, value.x);
  atomicAdd(t + 1, value.y);
  atomicAdd(t + 2, value.z);
  atomicAdd(t + 3, value.w);
#endif
}

// Four bfloat16 numbers.
struct alignas(8) ShortFour {
  BFloat16 v[4];
};

// Rounds to the nearest and adds atomically, where each sum is rounded; from sm_90 on as one 8-byte reduction.
inline __device__ void add_short(ShortFour* target, float4 value) {
#if __CUDA_ARCH__ >= 900
  uint32_t low, high;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(value.y), "f"(value.x));
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(value.w), "f"(value.z));
  asm volatile("red.relaxed.gpu.global.add.noftz.v2.bf16x2 [%0], {%1, %2};" ::"l"(target), "r"(low), "r"(high)
               : "memory");
#else
  auto* t = reinterpret_cast<__nv_bfloat16*>(target);
  atomicAdd(t, __float2bfloat16(value.x));
  atomicAdd(t + 1, __float2bfloat16(value.y));
  atomicAdd(t + 2, __float2bfloat16(value.z));
  atomicAdd(t + 3, __float2bfloat16(value.w));
#endif
}

inline __device__ void add_short(BFloat16* target, float value) {
  atomicAdd(reinterpret_cast<__nv_bfloat16*>(target), __float2bfloat16(value));
}

}  // namespace nerf::cuda
