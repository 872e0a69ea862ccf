// Loops over the cores. Each index is handled by one core in the order of the indices, so results do not depend on the
// number of cores.
#pragma once

#include "../stream.h"
#include "threads.h"

namespace nerf::cpu {

template <class Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
  const auto piece = [](int64_t begin, int64_t end, const void* of) {
    const Body& each = *static_cast<const Body*>(of);
    for (int64_t i = begin; i < end; ++i) each(i);
  };
  in_pieces(count, grain, piece, &body);
}

// What a portable body runs on: see ../device.h.
class Device {
 public:
  explicit Device(Stream stream) : stream_(stream) {}
  operator Stream() const { return stream_; }

  // body(i) for every i below count. grain: so many are worth a core.
  template <class Body>
  void for_each(const char*, int64_t count, int64_t grain, const Body& body) const {
    parallel_for(count, grain, body);
  }
  template <class Body>
  void for_each(const char* name, int64_t count, const Body& body) const {
    for_each(name, count, 1024, body);
  }

  // Sums of several indices would depend on the number of cores: an operation that needs them has a file in cpu/.
  template <class T>
  static void add(T* address, T value) = delete;

  // Sets bits that others may set at the same time.
  static void set_bits(uint64_t* address, uint64_t bits) {
    if (bits & ~__atomic_load_n(address, __ATOMIC_RELAXED)) __atomic_fetch_or(address, bits, __ATOMIC_RELAXED);
  }

  // Makes a flag false that others may make false at the same time.
  static void clear(bool* flag) { __atomic_store_n(flag, false, __ATOMIC_RELAXED); }

 private:
  Stream stream_;
};

}  // namespace nerf::cpu
