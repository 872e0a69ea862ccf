// Four floats at a time, and sums of such that are stored as bfloat16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "round_pair.cuh"

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

inline __device__ uint2 round_four(float4 v) { return {round_pair(v.x, v.y), round_pair(v.z, v.w)}; }

// Rounds to the nearest and adds atomically, where each sum is rounded; from sm_90 on as one 8-byte reduction.
inline __device__ void add_short(ShortFour* target, float4 value) {
#if __CUDA_ARCH__ >= 900
  const uint2 pairs = round_four(value);
  asm volatile("red.relaxed.gpu.global.add.noftz.v2.bf16x2 [%0], {%1, %2};" ::"l"(target), "r"(pairs.x), "r"(pairs.y)
               : "memory");
#else
  auto* t = reinterpret_cast<__nv_bfloat16*>(target);
  atomicAdd(t, __float2bfloat16(value.x));
  atomicAdd(t + 1, __float2bfloat16(value.y));
  atomicAdd(t + 2, __float2bfloat16(value.z));
  atomicAdd(t + 3, __float2bfloat16(value.w));
#endif
}

// The same for eight numbers from target on, on 16 bytes; from sm_90 on as one reduction.
inline __device__ void add_short(void* target, float4 low, float4 high) {
#if __CUDA_ARCH__ >= 900
  const uint2 first = round_four(low), last = round_four(high);
  asm volatile("red.relaxed.gpu.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};" ::"l"(target), "r"(first.x),
               "r"(first.y), "r"(last.x), "r"(last.y)
               : "memory");
#else
  auto* t = static_cast<ShortFour*>(target);
  add_short(t, low);
  add_short(t + 1, high);
#endif
}

inline __device__ void add_short(BFloat16* target, float value) {
  atomicAdd(reinterpret_cast<__nv_bfloat16*>(target), __float2bfloat16(value));
}

}  // namespace nerf::cuda
