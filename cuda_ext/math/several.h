// Neighboring numbers of a row that are moved at once: on a GPU by instructions of up to 16 bytes.
#pragma once

#include <cstring>
#include <type_traits>

#include "host_device.h"

namespace nerf {

constexpr int kBytesAtOnce = 16;

template <class T, int kCount>
struct Several {
  T v[kCount];

  // The address has to be a multiple of what all of them take, or of 16 bytes.
  static HOST_DEVICE Several load(const T* address) {
    Several several;
#ifdef __CUDA_ARCH__
    NERF_UNROLL for (int i = 0; i < kWords; ++i) {
      const Word word = reinterpret_cast<const Word*>(address)[i];
      memcpy(reinterpret_cast<char*>(several.v) + i * sizeof word, &word, sizeof word);
    }
#else
    for (int c = 0; c < kCount; ++c) several.v[c] = address[c];
#endif
    return several;
  }

  HOST_DEVICE void store(T* address) const {
#ifdef __CUDA_ARCH__
    NERF_UNROLL for (int i = 0; i < kWords; ++i) {
      Word word;
      memcpy(&word, reinterpret_cast<const char*>(v) + i * sizeof word, sizeof word);
      if constexpr (kBytes % 8 == 0) __stcg(reinterpret_cast<Word*>(address) + i, word);  // an assignment may be taken apart
      else reinterpret_cast<Word*>(address)[i] = word;
    }
#else
    for (int c = 0; c < kCount; ++c) address[c] = v[c];
#endif
  }

  HOST_DEVICE bool is_zero() const {
    bool zero = true;
    NERF_UNROLL for (int c = 0; c < kCount; ++c) zero = zero && v[c] == T(0);
    return zero;
  }

 private:
#ifdef __CUDACC__
  static constexpr int kBytes = sizeof(T) * kCount;
  using Word = std::conditional_t<kBytes % 16 == 0, uint4, std::conditional_t<kBytes % 8 == 0, uint2, T>>;
  static constexpr int kWords = kBytes / int(sizeof(Word));
#endif
};

template <class T>
bool begins_whole(const T* address) {
  return reinterpret_cast<uintptr_t>(address) % kBytesAtOnce == 0;
}

// body(constant) with how many neighboring channels a thread takes: of numbers stored as S as many as 16 bytes hold, or half
// as many, if rows consist of so many and memory begins at a multiple of 16 bytes; else 1.
template <class S, class Body>
void with_several(int64_t channels, bool begin_whole, const Body& body) {
  constexpr int kMost = kBytesAtOnce / int(sizeof(S));
  if (begin_whole && channels % kMost == 0) return body(std::integral_constant<int, kMost>());
  if constexpr (kMost == 8)
    if (begin_whole && channels % 4 == 0) return body(std::integral_constant<int, 4>());
  body(std::integral_constant<int, 1>());
}

}  // namespace nerf
