// A step of masked Adam (adam.h) for rows of a grid that is elsewhere, as in host memory, from copies of their values.
//
// The moments are read where they are, and moments and values are written there, only where there is a gradient: each
// number goes over the bus once in a direction, and both directions are in use at once. The two moments are arrays of their
// own: an instruction then reads rows that follow each other as one piece, and short pieces take more of the bus.
//
// Values may be stored as float16, their moments then as bfloat16: rounded at random (rounding.h). The copies become what is
// stored, for a step after this one that brings the same rows (bring_rows.h).
#pragma once

#include "adam.h"
#include "place.h"
#include "several.h"

namespace nerf {

// S: as values are stored.
template <class S>
struct AdamRowsArgs {
  using T = Wide<S>;
  AdamArgs<T> adam;                       // grad [K,C]; all_rows: L; num_rows: of the list below
  S* param;                               // [L,C]
  Moment<S>* moments;                     // [2,A,C] exp_avg, then exp_avg_sq
  int64_t moment_rows, value_rows;        // A, K
  T* values;                              // [K,C] copies
  const int64_t *rows, *places, *stored;  // [num_rows] of K and of A, [K] of L: passed over where there is no such row
  AdamScale<T>* scale;                    // [1]
};

// Pack i of the list, of kCount channels.
template <int kCount, class S>
HOST_DEVICE void adam_row_values(const AdamRowsArgs<S>& a, int64_t i) {
  using T = Wide<S>;
  using M = Moment<S>;
  const AdamArgs<T>& adam = a.adam;
  const Place p = place(i, adam.channels / kCount);
  const int64_t row = a.rows[p.row];
  if (row < 0 || row >= a.value_rows) return;
  const int64_t column = int64_t(p.column) * kCount, here = row * adam.channels + column;
  const auto grad = Several<T, kCount>::load(adam.grad + here);
  if (grad.is_zero()) return;
  const int64_t moment_row = a.places[p.row], stored = a.stored[row];
  if (moment_row < 0 || moment_row >= a.moment_rows || stored < 0 || stored >= adam.all_rows) return;
  M* const first = a.moments + moment_row * adam.channels + column;
  M* const second = first + a.moment_rows * adam.channels;
  auto m = Several<M, kCount>::load(first), v = Several<M, kCount>::load(second);
  auto values = Several<T, kCount>::load(a.values + here);
  Several<S, kCount> rounded;
  const AdamScale<T> scale = *a.scale;
  const uint32_t seed = random_row(*adam.step, stored);
  NERF_UNROLL for (int c = 0; c < kCount; ++c) {
    T value = values.v[c], m_c = widen(m.v[c]), v_c = widen(v.v[c]);
    adam_value(adam, scale, T(adam.lr[adam.lr_count == 1 ? 0 : column + c]), grad.v[c], value, m_c, v_c);
    const uint32_t random = random_bits(seed, uint32_t(column + c));
    m.v[c] = narrow_at_random<M>(m_c, random);
    v.v[c] = narrow_at_random<M>(v_c, random >> 16);
    rounded.v[c] = narrow_at_random<S>(value, hashed(random));
    values.v[c] = widen(rounded.v[c]);
  }
  rounded.store(a.param + stored * adam.channels + column);
  values.store(a.values + here);
  m.store(first);
  v.store(second);
}

}  // namespace nerf
