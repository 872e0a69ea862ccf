// Stands in for PyTorch's threads, so that cuda_ext/cpu compiles without PyTorch: as many pieces as there would be threads,
// one after the other.
#pragma once

#include <algorithm>
#include <cstdint>

namespace torch::stable {

inline int64_t num_threads = 1;

inline int64_t get_num_threads() { return num_threads; }

template <class Body>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Body& body) {
  if (begin >= end) return;
  const int64_t pieces = std::min(num_threads, (end - begin + grain - 1) / grain);
  const int64_t length = (end - begin + pieces - 1) / pieces;
  for (int64_t first = begin; first < end; first += length) body(first, std::min(end, first + length));
}

}  // namespace torch::stable
