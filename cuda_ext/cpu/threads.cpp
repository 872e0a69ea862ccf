// PyTorch's threads. Here alone: its headers take the compiler longer than a file of loops does.
#include "threads.h"

#include <torch/csrc/stable/ops.h>

namespace nerf::cpu {

void in_pieces(int64_t count, int64_t grain, Piece* piece, const void* body) {
  torch::stable::parallel_for(0, count, grain, [=](int64_t begin, int64_t end) { piece(begin, end, body); });
}

int64_t num_threads() { return torch::stable::get_num_threads(); }

}  // namespace nerf::cpu
