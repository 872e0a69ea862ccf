// Four floats at a time.
#pragma once

#include <cuda_runtime.h>

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

}  // namespace nerf::cuda
