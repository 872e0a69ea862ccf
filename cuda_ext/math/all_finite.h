// Whether all numbers of several tensors are finite. They are taken in chunks, which are numbered through all of them.
#pragma once

#include "host_device.h"

namespace nerf {

constexpr int kMostTensors = 32;        // at once: a kernel has their places as arguments, not in memory
constexpr int64_t kFiniteChunk = 4096;  // numbers: what a block of threads reads with all loads on their way together

template <class T>
struct AllFiniteArgs {
  const T* values[kMostTensors];
  int64_t sizes[kMostTensors];
  int64_t chunk_ends[kMostTensors];  // chunks of this tensor and those before it; without a tensor as before it
  int64_t chunks;                    // of all
  bool* finite;                      // [1], true; becomes false
};

template <class T>
struct FiniteChunk {
  const T* values;
  int64_t size;
};

template <class T>
HOST_DEVICE FiniteChunk<T> finite_chunk(const AllFiniteArgs<T>& a, int64_t chunk) {
  int tensor = 0;
  NERF_UNROLL for (int t = 0; t < kMostTensors; ++t) tensor += a.chunk_ends[t] <= chunk;
  const int64_t first = (chunk - (tensor ? a.chunk_ends[tensor - 1] : 0)) * kFiniteChunk;
  return {a.values[tensor] + first, min2(a.sizes[tensor] - first, kFiniteChunk)};
}

template <class T>
HOST_DEVICE bool is_finite(T x) {
  return x - x == T(0);
}

template <class T>
HOST_DEVICE bool is_finite(const FiniteChunk<T>& chunk) {
  int others = 0;  // added up without a way out, which compilers make vectors of
  for (int64_t i = 0; i < chunk.size; ++i) others += !is_finite(chunk.values[i]);
  return others == 0;
}

}  // namespace nerf
