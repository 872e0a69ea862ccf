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

constexpr int64_t kShortCells = 1 << 24;  // up to so many every cell's number is a float and an int

// The cell of 0 <= cell < count <= kShortCells that x lies in or next to; NaN is in cell 0. Clamped before the cast: a cast
// of NaN, or of a number beyond the integers, is undefined.
template <class T>
HOST_DEVICE int32_t nearest_short_cell(T x, int32_t count) {
  const T cell = std::floor(x);
  return int32_t(cell > T(0) ? min2(cell, T(count - 1)) : T(0));
}

// The same for any count. Not by asking for the count first: a kernel that only waits for memory waits longer with it.
template <class T>
HOST_DEVICE int64_t nearest_cell(T x, int64_t count) {
  const T cell = std::floor(x);
  // The last cell's number may have been rounded up to one that is none; hence a second look at the integer.
  return min2(int64_t(cell > T(0) ? min2(cell, T(count - 1)) : T(0)), count - 1);
}

}  // namespace nerf
