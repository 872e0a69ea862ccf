// Checks of what tensors hold and where: indices, offsets, memory in common, sizes that a product of 64 bits counts.
//
// On the CPU each is made once, before the loop. On CUDA nobody waits for numbers: there kernels clamp offsets and leave out
// what an index outside asks for (README.md, "Promises").
#pragma once

#include <cstdio>
#include <initializer_list>
#include <optional>
#include <utility>

#include "../checks.h"

namespace nerf {

inline std::string number_name(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

// The product of sizes; rejects sizes that no tensor with an element could have.
inline int64_t product(const char* name, std::initializer_list<int64_t> sizes) {
  int64_t all = 1;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(all, size, &all))
      reject(std::string(name) + " has sizes " + shape_name(Shape(sizes)) + ", expected a product below 2^63");
  return all;
}

// Kernels count the numbers of a row in 32 bits.
inline void check_channels(const char* name, int64_t channels) {
  if (channels > INT32_MAX) reject(std::string(name) + " has " + std::to_string(channels) + " channels, expected fewer than 2^31");
}

// That either all of these are there or none; of: what they tell of.
inline void check_together(const char* of,
                           std::initializer_list<std::pair<const char*, const std::optional<Tensor>*>> parts) {
  bool any = false;
  for (const auto& part : parts) any = any || *part.second;
  for (const auto& [name, part] : parts)
    if (any && !*part) reject(std::string(name) + " is None, expected that of the " + of + ", as the others are");
}

// Numbers of memory from the first to the last one of a tensor.
inline int64_t span(const Tensor& t) {
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return t.numel() ? last + 1 : 0;
}

inline bool memory_meets(const Tensor& a, const Tensor& b) {
  const auto begin = [](const Tensor& t) { return static_cast<const char*>(t.data_ptr()); };
  const auto end = [&](const Tensor& t) { return begin(t) + span(t) * t.element_size(); };
  return a.numel() && b.numel() && begin(a) < end(b) && begin(b) < end(a);
}

// What an operation writes in place has memory of its own, apart from all others. Of tensors with gaps all that lies between
// counts.
inline void check_apart(std::initializer_list<std::pair<const char*, const Tensor*>> written,
                        std::initializer_list<std::pair<const char*, const Tensor*>> read) {
  for (auto w = written.begin(); w != written.end(); ++w) {
    const auto check = [&](const auto& other) {
      if (memory_meets(*w->second, *other.second))
        reject(std::string(other.first) + " has memory in common with " + w->first +
               ", expected memory of its own; use .clone()");
    };
    for (auto other = w + 1; other != written.end(); ++other) check(*other);
    for (const auto& other : read) check(other);
  }
}

// One look at all numbers of a tensor, which compilers make vectors of, and a second one only where something is wrong.
template <class Int>
void check_indices_of(const char* name, const Int* index, int64_t count, int64_t end, int64_t first) {
  uint64_t signs = 0;  // a number below first, or above end - 1, leaves its sign
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t number = uint64_t(int64_t(index[i]));
    signs |= (number - uint64_t(first)) | (uint64_t(end) - 1 - number);
  }
  if (int64_t(signs) >= 0) return;
  for (int64_t i = 0; i < count; ++i)
    if (index[i] < first || index[i] >= end)
      reject(std::string(name) + " has the value " + std::to_string(index[i]) + " at " + std::to_string(i) +
             ", expected " + std::to_string(first) + " to " + std::to_string(end - 1) + (end ? "" : ": nothing is there to be found"));
}

// A contiguous tensor of int64 or int32 whose numbers are first to end - 1. first: -1 where that stands for nothing.
inline void check_indices(const char* name, const Tensor& t, int64_t end, int64_t first = 0) {
  if (t.is_cuda()) return;
  if (t.scalar_type() == ScalarType::Int) check_indices_of(name, data<int32_t>(t), t.numel(), end, first);
  else check_indices_of(name, data<int64_t>(t), t.numel(), end, first);
}

// ray_offsets [R+1] int64, contiguous: ray r owns samples ray_offsets[r] to ray_offsets[r + 1] - 1 of num_samples.
inline void check_offsets(const Tensor& ray_offsets, int64_t num_samples) {
  if (ray_offsets.is_cuda()) return;
  const int64_t *offset = data<int64_t>(ray_offsets), rays = ray_offsets.size(0) - 1;
  uint64_t signs = 0;  // of numbers below 0, and of those smaller than the one before
  for (int64_t r = 0; r < rays; ++r) signs |= uint64_t(offset[r + 1]) | (uint64_t(offset[r + 1]) - uint64_t(offset[r]));
  if (offset[0] == 0 && int64_t(signs) >= 0 && offset[rays] <= num_samples) return;
  const auto fail = [&](int64_t r, const std::string& expected) {
    reject("ray_offsets has the value " + std::to_string(offset[r]) + " at " + std::to_string(r) + ", expected " +
           expected);
  };
  if (offset[0] != 0) fail(0, "0");
  for (int64_t r = 1; r <= rays; ++r) {
    if (offset[r] < offset[r - 1]) fail(r, std::to_string(offset[r - 1]) + " or more, as before it");
    if (offset[r] > num_samples) fail(r, std::to_string(num_samples) + " at most, the number of samples");
  }
}

}  // namespace nerf
