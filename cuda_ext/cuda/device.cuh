// What a portable body runs on, on CUDA: see ../device.h.
#pragma once

#include "pack.cuh"

namespace nerf::cuda {

class Device {
 public:
  explicit Device(Stream stream) : stream_(stream) {}
  operator Stream() const { return stream_; }

  // body(i) for every i below count, one thread each. name: of the operation, for errors. grain: for the CPU.
  template <class Body>
  void for_each(const char* name, int64_t count, int64_t /*grain*/, const Body& body) const {
    cuda::for_each(count, name, stream_, body);
  }
  template <class Body>
  void for_each(const char* name, int64_t count, const Body& body) const {
    cuda::for_each(count, name, stream_, body);
  }

  // Adds atomically.
  template <class T>
  static __device__ void add(T* address, T value) {
    add_atomic(address, Pack<T, 1>{value});
  }

  // Sets bits that others may set at the same time.
  static __device__ void set_bits(uint64_t* address, uint64_t bits) {
    auto* word = reinterpret_cast<unsigned long long*>(address);
    if (bits & ~*static_cast<volatile unsigned long long*>(word)) atomicOr(word, bits);
  }

  // Makes a flag false that others may make false at the same time.
  static __device__ void clear(bool* flag) { *flag = false; }

 private:
  Stream stream_;
};

}  // namespace nerf::cuda
