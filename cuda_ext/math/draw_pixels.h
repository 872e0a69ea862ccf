// A pixel from each of n equal parts of a set of pixels, which is kept as runs of neighbors:
//
//   index_i = floor((i + random_i) part),  part = count / n        the place in the list of all pixels of the set
//   pixel_i = index_i + shifts[run],       offsets[run] <= index_i < offsets[run + 1]
//
// Computed in float64 whatever random is. No product is added to anything, so no compiler fuses one with a sum: the
// same pixels are drawn everywhere.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct DrawPixelsArgs {
  const T* random;         // [n] in [0,1)
  const int64_t* offsets;  // [runs + 1] rising from 0 to count
  const int64_t* shifts;   // [runs]
  int64_t num_drawn, runs, count;
  double part;
  int64_t* out;  // [n]
};

constexpr int kProbes = 7;

// The run that an index lies in. A search in halves waits for one number after the other; here kProbes of them are on
// their way together, and six rounds find one of 100 000 runs. Offsets that do not rise give some run.
HOST_DEVICE int64_t run_of(const int64_t* offsets, int64_t runs, int64_t index) {
  int64_t first = 0, end = runs;  // offsets[first] <= index < offsets[end]
  while (end - first > 1) {
    const int64_t step = (end - first + kProbes) / (kProbes + 1);
    int64_t passed = 0;
    NERF_UNROLL for (int probe = 1; probe <= kProbes; ++probe)
      passed += offsets[min2(first + probe * step, end)] <= index;
    first = min2(first + passed * step, end - 1);
    end = min2(first + step, end);
  }
  return first;
}

// A number that is none, or outside of [0,1), draws the nearest pixel of the set.
template <class T>
HOST_DEVICE void draw_pixel(const DrawPixelsArgs<T>& a, int64_t i) {
  const int64_t index = nearest_cell((double(i) + double(a.random[i])) * a.part, a.count);
  // As unsigned numbers, whose sum is defined whatever the shifts are.
  a.out[i] = int64_t(uint64_t(index) + uint64_t(a.shifts[run_of(a.offsets, a.runs, index)]));
}

}  // namespace nerf
