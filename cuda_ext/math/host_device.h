// What both compilers need before any mathematics: marks and a few one-liners.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ __forceinline__
#define NERF_UNROLL _Pragma("unroll")
#else
#define HOST_DEVICE inline
#define NERF_UNROLL _Pragma("GCC unroll 8")
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

// The cell of 0 <= cell < count that x lies in or next to; NaN is in cell 0. Clamped before the cast: a cast of NaN, or of
// a number beyond the integers, is undefined.
template <class T>
HOST_DEVICE int64_t nearest_cell(T x, int64_t count) {
  const T cell = std::floor(x);
  // Where every cell's number is a T and an int, 32 bits do: of 64 a GPU casts a quarter as many at a time.
  if (count <= 1 << 24) return int32_t(cell > T(0) ? min2(cell, T(int32_t(count) - 1)) : T(0));
  // The last cell's number may have been rounded up to one that is none; hence a second look at the integer.
  return min2(int64_t(cell > T(0) ? min2(cell, T(count - 1)) : T(0)), count - 1);
}

}  // namespace nerf
