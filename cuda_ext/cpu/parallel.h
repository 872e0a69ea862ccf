// Loops over the cores. Each index is handled by one core in the order of the indices, so results do not depend on the
// number of cores.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "../kernels.h"

namespace nerf::cpu {

template <class Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
  torch::stable::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace nerf::cpu
