// Pieces of a loop, on PyTorch's threads.
#pragma once

#include <cstdint>

namespace nerf::cpu {

using Piece = void(int64_t begin, int64_t end, const void* body);

// piece(begin, end, body) for pieces that make up 0 ... count, none shorter than grain but the last.
void in_pieces(int64_t count, int64_t grain, Piece* piece, const void* body);

int64_t num_threads();

}  // namespace nerf::cpu
