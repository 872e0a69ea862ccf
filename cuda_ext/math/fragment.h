// How the numbers of small matrices lie in the registers of a warp for m16n8k16, the product of bfloat16 matrices on tensor cores
// (PTX ISA, "Matrix Fragments for mma.m16n8k16"): D [16,8] = A [16,16] B [16,8] + C. A register holds two bfloat16 numbers,
// half 0 in its lower bits.
#pragma once

#include "host_device.h"

namespace nerf {

struct Element {
  int row, column;
};

// Register 0 ... 3, half 0 or 1 of A.
HOST_DEVICE Element element_of_a(int lane, int reg, int half) {
  return {lane / 4 + reg % 2 * 8, lane % 4 * 2 + half + reg / 2 * 8};
}
// Register 0 or 1, half 0 or 1 of B.
HOST_DEVICE Element element_of_b(int lane, int reg, int half) { return {lane % 4 * 2 + half + reg * 8, lane / 4}; }
// Register 0 ... 3 of C and D, which hold one float32 each.
HOST_DEVICE Element element_of_c(int lane, int reg) { return {lane / 4 + reg / 2 * 8, lane % 4 * 2 + reg % 2}; }

// Weights as the kernels read them: B [K,N] in steps of 16 rows, and in each step two neighbouring tiles of 8 columns side by
// side, so that a lane reads its four registers at once. The element at a place of that order, columns counted in N.
HOST_DEVICE Element element_of_packed(int64_t place, int columns) {
  const int half = int(place % 2), reg = int(place / 2 % 4), lane = int(place / 8 % 32), pairs = columns / 16;
  const int pair = int(place / 256 % pairs), step = int(place / 256 / pairs);
  const Element e = element_of_b(lane, reg % 2, half);
  return {step * 16 + e.row, pair * 16 + reg / 2 * 8 + e.column};
}

}  // namespace nerf
