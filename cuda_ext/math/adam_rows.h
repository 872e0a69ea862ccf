// A step of masked Adam (adam.h) for rows of a grid that is elsewhere, as in host memory, from copies of their values.
//
// The moments are read where they are, and moments and values are written there, only where there is a gradient: each
// number goes over the bus once in a direction, and both directions are in use at once.
#pragma once

#include "adam.h"
#include "place.h"

namespace nerf {

template <class T>
struct AdamRowsArgs {
  AdamArgs<T> adam;  // param [L,C], moments [A,C], grad [K,C]; all_rows: L; num_rows: of the list below
  int64_t moment_rows, value_rows;        // A, K
  const T* values;                        // [K,C] copies
  const int64_t *rows, *places, *stored;  // [num_rows] of K and of A, [K] of L: passed over where there is no such row
  AdamScale<T>* scale;                    // [1]
};

// Value i of the list.
template <class T>
HOST_DEVICE void adam_row_value(const AdamRowsArgs<T>& a, int64_t i) {
  const AdamArgs<T>& adam = a.adam;
  const Place p = place(i, adam.channels);
  const int64_t row = a.rows[p.row];
  if (row < 0 || row >= a.value_rows) return;
  const T grad = adam.grad[row * adam.channels + p.column];
  if (grad == T(0)) return;
  const int64_t moment_row = a.places[p.row], stored = a.stored[row];
  if (moment_row < 0 || moment_row >= a.moment_rows || stored < 0 || stored >= adam.all_rows) return;
  const int64_t moment = moment_row * adam.channels + p.column;
  T value = a.values[row * adam.channels + p.column], m = adam.exp_avg[moment], v = adam.exp_avg_sq[moment];
  adam_value(adam, *a.scale, T(adam.lr[adam.lr_count == 1 ? 0 : p.column]), grad, value, m, v);
  adam.param[stored * adam.channels + p.column] = value;
  adam.exp_avg[moment] = m;
  adam.exp_avg_sq[moment] = v;
}

}  // namespace nerf
