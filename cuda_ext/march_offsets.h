// What comes before and after a walk along rays: check_lattices(args, stream), pack_occupancy and
// counts_to_offsets(args, stream).
#pragma once

#include <cstdint>

#include "stream.h"

#ifdef __CUDACC__
#include "cuda/march_offsets.cuh"
#else
#include "cpu/march_offsets.h"
#endif

namespace nerf::cuda {
// Waits for the stream and reads one integer.
int64_t read(const int64_t* address, Stream stream);
}  // namespace nerf::cuda
