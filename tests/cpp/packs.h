// For pack.cuh, on a stand-in for a GPU.
#pragma once

namespace nerf::cuda {

constexpr int kThreads = 256;
template <class T, int kCount>
struct Pack { T v[kCount]; };
template <class T>
constexpr int kPackSize = 16 / int(sizeof(T));

template <int kCount, class T>
Pack<T, kCount> load(const T* address) {
  Pack<T, kCount> pack;
  for (int c = 0; c < kCount; ++c) pack.v[c] = address[c];
  return pack;
}
template <int kCount, class T>
void store(T* address, const Pack<T, kCount>& pack) {
  for (int c = 0; c < kCount; ++c) address[c] = pack.v[c];
}
template <class T, int kCount>
bool is_zero(const Pack<T, kCount>& pack) {
  for (const T& value : pack.v)
    if (value != T(0)) return false;
  return true;
}

}  // namespace nerf::cuda
