// How the numbers of small matrices lie in the registers of a warp for m16n8k16, the product of bfloat16 matrices on tensor cores
// (PTX ISA, "Matrix Fragments for mma.m16n8k16"): D [16,8] = A [16,16] B [16,8] + C. A register holds two bfloat16 numbers,
// half 0 in its lower bits. Behind it, how B lies in shared memory for Hopper's product by a warpgroup.
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

// Weights as the kernels read them: B [K,N] in steps of 16 rows, and in each step two neighboring tiles of 8 columns side by
// side, so that a lane reads its four registers at once. The element at a place of that order, columns counted in N.
HOST_DEVICE Element element_of_packed(uint32_t place, uint32_t columns) {
  const int half = int(place % 2), reg = int(place / 2 % 4), lane = int(place / 8 % 32);
  const int pair = int(place / 256 % (columns / 16)), step = int(place / 16 / columns);
  const Element e = element_of_b(lane, reg % 2, half);
  return {step * 16 + e.row, pair * 16 + reg / 2 * 8 + e.column};
}

// A warpgroup's product: D [64,N] = A [64,16] B [16,N] + D (PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16").
// Warp w of four has rows 16 w ... 16 w + 15 of A and D and holds them as above, D in tiles of 8 columns. B lies in
// shared memory, k-major and not swizzled, as core matrices: 8 columns, of each 8 numbers along k, which are 16 bytes.
constexpr int kCore = 64;  // numbers of a core matrix
// Bytes from a core matrix to the next one along k ("leading dimension") and along the columns ("stride dimension").
constexpr uint32_t kCoreAlongK = 2 * kCore, kCoreAlongColumns = 4 * kCore;

// B [K,N] in steps of 16 rows, each a run of core matrices, the two along k first. The element at a place of that run.
HOST_DEVICE Element element_of_cores(uint32_t place, uint32_t columns) {
  const int k = int(place % 8), n = int(place / 8 % 8), second = int(place / kCore % 2);
  const int core = int(place / (2 * kCore) % (columns / 8)), step = int(place / 16 / columns);
  return {step * 16 + second * 8 + k, core * 8 + n};
}

// What tells a product where B is (PTX ISA, "Matrix Descriptor"): in bits 0 to 13 its address, in 16 to 29 and 32 to
// 45 the two distances, all in units of 16 bytes; in bits 62 and 63, how it is swizzled: not.
HOST_DEVICE uint64_t describe_cores(uint32_t address) {
  return address / 16 | uint64_t(kCoreAlongK / 16) << 16 | uint64_t(kCoreAlongColumns / 16) << 32;
}

// A factor whose rows follow each other along k, as they do in global memory: blocks of 64 columns, of each a row of 128
// bytes after the other, whose eight packs of 16 bytes stand in an order of their own ("128-byte swizzle"), so that
// eight rows' packs of the same columns are in different banks. A block begins at a multiple of 1024 bytes.
constexpr int kRowOfBlock = 64;                             // numbers
constexpr uint64_t kBlockStep = 16 * 2 * kRowOfBlock / 16;  // from 16 rows to the next, as a descriptor counts
HOST_DEVICE int place_in_block(int row, int pack) { return row * kRowOfBlock + (pack ^ row % 8) * 8; }

// What tells a product where such a factor is: here the first distance is that from block to block, the second that
// from eight rows to the next. rows: of a block.
HOST_DEVICE uint64_t describe_blocks(uint32_t address, int rows) {
  const uint64_t block = rows * 2 * kRowOfBlock, eight_rows = 8 * 2 * kRowOfBlock;
  return address / 16 | block / 16 << 16 | eight_rows / 16 << 32 | uint64_t(1) << 62;
}

// Which of a layer's columns is a column of a warpgroup's product: of each 32, the product's 8 t + 2 j + half is the
// layer's 8 j + 2 t + half. A thread, which has columns 2 j and 2 j + 1 of every tile t, so has eight neighbors: 16
// bytes that it stores at once.
HOST_DEVICE int in_layer(int column) { return (column & ~30) | (column & 6) << 2 | (column & 24) >> 2; }

}  // namespace nerf
