// For the benchmark, on CUDA alone: what memory can do at best with random addresses.
#pragma once

#include <cstdint>

#include "../stream.h"

namespace nerf::cuda {

// Each thread reads one float at a random place (width 1), or eight threads a random line of 32 floats (width 32); places: a
// power of two.
void gather_at_random(const float* source, int64_t places, int width, float* sums, int64_t count, Stream stream);
// Each thread adds 1 to `width` consecutive floats, 1 or 4, at a random multiple of width; places: a power of two.
void add_at_random(float* target, int64_t places, int width, int64_t count, Stream stream);

}  // namespace nerf::cuda
