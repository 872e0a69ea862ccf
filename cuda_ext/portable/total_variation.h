// total_variation_grad: one value of the grid at a time.
#pragma once

#include "../device.h"
#include "../math/total_variation.h"

namespace nerf {
namespace portable {

template <class T>
void total_variation(const Device& device, const TotalVariationArgs<T>& a) {
  if (a.table.words) {
    device.for_each("total_variation_grad", a.num_rows * a.channels, [a] ON_DEVICE(int64_t k) {
      sparse_total_variation_gradient(a, k / a.channels, k % a.channels, k % a.channels + 1);
    });
    return;
  }
  device.for_each("total_variation_grad", variation_count(a),
                  [a] ON_DEVICE(int64_t k) { total_variation_gradient(a, k); });
}

}  // namespace portable

NERF_PORTABLE(total_variation, TotalVariationArgs)
NERF_BODY_FOR(total_variation, TotalVariationArgs, ShortValues)

}  // namespace nerf
