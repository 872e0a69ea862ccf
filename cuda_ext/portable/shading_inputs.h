// shading_inputs: forward one number at a time, so that neighbouring threads write neighbouring numbers; backward one pixel.
#pragma once

#include "../device.h"
#include "../math/place.h"
#include "../math/shading_inputs.h"

namespace nerf {
namespace portable {

template <class T>
void shading_inputs(const Device& device, const ShadingInputsArgs<T>& a) {
  device.for_each("shading_inputs", a.pixels * a.width, [a] ON_DEVICE(int64_t i) {
    const Place p = place(i, a.width);
    a.out[i] = shading_input(a, p.row, p.column);
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
