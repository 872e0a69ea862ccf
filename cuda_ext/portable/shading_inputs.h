// shading_inputs: forward some numbers of a row at a time, so that neighboring threads write neighboring numbers; backward
// one pixel.
#pragma once

#include "../device.h"
#include "../math/place.h"
#include "../math/shading_inputs.h"

namespace nerf {
namespace portable {

template <class T>
void shading_inputs(const Device& device, const ShadingInputsArgs<T>& a) {
  const int64_t packs = (a.width + kInputsAtOnce - 1) / kInputsAtOnce;
  device.for_each("shading_inputs", a.pixels * packs, [a, packs] ON_DEVICE(int64_t i) {
    const Place p = place(i, packs);
    write_shading_inputs(a, p.row, kInputsAtOnce * p.column);
  });
}

template <class T>
void shading_inputs_backward(const Device& device, const ShadingInputsArgs<T>& a) {
  device.for_each("shading_inputs_backward", a.pixels, 256,
                  [a] ON_DEVICE(int64_t p) { shading_inputs_gradient(a, p); });
}

}  // namespace portable

NERF_PORTABLE(shading_inputs, ShadingInputsArgs)
NERF_PORTABLE(shading_inputs_backward, ShadingInputsArgs)

}  // namespace nerf
