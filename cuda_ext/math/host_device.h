// What both compilers need before any mathematics: marks and a few one-liners.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ __forceinline__
#define NERF_UNROLL _Pragma("unroll")
#else
#define HOST_DEVICE inline
#define NERF_UNROLL
#endif

namespace nerf {

template <class T>
HOST_DEVICE T min2(T a, T b) {
  return a < b ? a : b;
}

template <class T>
HOST_DEVICE T max2(T a, T b) {
  return a > b ? a : b;
}

template <class T>
HOST_DEVICE T clamp(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;  // NaN stays NaN
}

}  // namespace nerf
