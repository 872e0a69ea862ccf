// Numbers rounded to the nearest bfloat16, two in a register.
#pragma once

#include <cuda_runtime.h>

#include "../math/bfloat16.h"

namespace nerf::cuda {

// The first in the lower bits.
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return narrow<BFloat16>(low).bits | uint32_t(narrow<BFloat16>(high).bits) << 16;
#endif
}

}  // namespace nerf::cuda
