// Neighboring numbers that one thread moves with one instruction of up to 16 bytes.
#pragma once

#include <cuda_bf16.h>

#include <cstring>

#include "../math/bfloat16.h"
#include "float4.cuh"
#include "launch.cuh"

namespace nerf::cuda {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T v[kCount];
};

constexpr int kPackBytes = 16;

template <class T>
constexpr int kPackSize = kPackBytes / int(sizeof(T));

template <class T>
bool is_pack_aligned(const T* address) {
  return reinterpret_cast<uintptr_t>(address) % kPackBytes == 0;
}

template <int kCount, class T>
__device__ Pack<T, kCount> load(const T* address) {
  Pack<T, kCount> pack;
  if constexpr (sizeof pack == kPackBytes) {
    const uint4 bits = *reinterpret_cast<const uint4*>(address);
    memcpy(&pack, &bits, sizeof pack);
  } else if constexpr (sizeof pack == kPackBytes / 2 && kCount > 1) {
    const uint2 bits = *reinterpret_cast<const uint2*>(address);
    memcpy(&pack, &bits, sizeof pack);
  } else {
    static_assert(kCount == 1);
    pack.v[0] = *address;
  }
  return pack;
}

template <int kCount, class T>
__device__ void store(T* address, const Pack<T, kCount>& pack) {
  if constexpr (sizeof pack == kPackBytes) {
    uint4 bits;
    memcpy(&bits, &pack, sizeof pack);
    *reinterpret_cast<uint4*>(address) = bits;
  } else if constexpr (sizeof pack == kPackBytes / 2 && kCount > 1) {
    uint2 bits;
    memcpy(&bits, &pack, sizeof pack);
    *reinterpret_cast<uint2*>(address) = bits;
  } else {
    static_assert(kCount == 1);
    *address = pack.v[0];
  }
}

template <class T, int kCount>
__device__ bool is_zero(const Pack<T, kCount>& pack) {
  bool zero = true;
#pragma unroll
  for (int c = 0; c < kCount; ++c) zero = zero && pack.v[c] == T(0);
  return zero;
}

// Reads what nobody reads again: first in line to leave the caches.
template <int kCount, class T>
__device__ Pack<T, kCount> load_once(const T* address) {
  Pack<T, kCount> pack;
  if constexpr (sizeof pack == kPackBytes) {
    const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(address));
    memcpy(&pack, &bits, sizeof pack);
  } else {
    static_assert(kCount == 1);
    pack.v[0] = *address;
  }
  return pack;
}

// Atomic additions whose result nobody waits for; from sm_90 on a pack of float32 or bfloat16 is one of them.
template <class T, int kCount>
__device__ void add_atomic(T* address, const Pack<T, kCount>& pack) {
#if __CUDA_ARCH__ >= 900
  constexpr bool kWide = true;
#else
  constexpr bool kWide = false;
#endif
  if constexpr (kWide && std::is_same_v<T, BFloat16> && sizeof pack == kPackBytes) {
#if __CUDA_ARCH__ >= 900
    uint4 bits;
    memcpy(&bits, &pack, sizeof pack);
    asm volatile("red.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(bits.x), "r"(bits.y),
                 "r"(bits.z), "r"(bits.w)
                 : "memory");
#endif
  } else if constexpr (kWide && std::is_same_v<T, float> && kCount == 4) {
    add_float4(reinterpret_cast<float4*>(address), make_float4(pack.v[0], pack.v[1], pack.v[2], pack.v[3]));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    for (int c = 0; c < kCount; ++c)
      atomicAdd(reinterpret_cast<__nv_bfloat16*>(address) + c, __ushort_as_bfloat16(pack.v[c].bits));
  } else {
    for (int c = 0; c < kCount; ++c) atomicAdd(address + c, pack.v[c]);
  }
}

}  // namespace nerf::cuda
