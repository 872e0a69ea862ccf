// world_depth: one ray at a time.
#pragma once

#include "../device.h"
#include "../math/world_depth.h"

namespace nerf {
namespace portable {

template <class T>
void world_depth(const Device& device, const WorldDepthArgs<T>& a) {
  device.for_each("world_depth", a.rays, 256, [a] ON_DEVICE(int64_t r) { find_world_depth(a, r); });
}

template <class T>
void world_depth_backward(const Device& device, const WorldDepthArgs<T>& a) {
  device.for_each("world_depth_backward", a.rays, 256, [a] ON_DEVICE(int64_t r) { world_depth_gradient(a, r); });
}

}  // namespace portable

NERF_PORTABLE(world_depth, WorldDepthArgs)
NERF_PORTABLE(world_depth_backward, WorldDepthArgs)

}  // namespace nerf
