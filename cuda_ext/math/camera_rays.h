// From a pixel to the rays through it: pinhole cameras, OpenGL's axes (nerf/cameras/cameras.py).
//
// Compiled without fused multiply-add, like the walks along these rays (march.h).
#pragma once

#include "host_device.h"

namespace nerf {

// Legend: I cameras, P pixels, S rays per pixel.
template <class T>
struct CameraRaysArgs {
  const T* c2w;         // [I,3,4]: right, up and backward axis, center
  const T* intrinsics;  // [I,4]: fx, fy, cx, cy in pixels
  int64_t num_cameras, width, height;
  const int64_t* pixel_indices;  // [P]
  int64_t num_pixels;
  const T* subpixels;  // [S,2] from the pixel's center
  int64_t rays_per_pixel;
  T *origins, *directions;  // [P*S,3]
};

// Camera, column and row of a pixel of the cameras. Nearly always 32 bits suffice, whose division is several times faster.
HOST_DEVICE void locate_pixel(int64_t pixel, int64_t width, int64_t height, int64_t place[3]) {
  const int64_t size = width * height;
  if (pixel <= INT32_MAX && size <= INT32_MAX) {
    const uint32_t within = uint32_t(pixel) % uint32_t(size);
    place[0] = uint32_t(pixel) / uint32_t(size), place[1] = within % uint32_t(width),
    place[2] = within / uint32_t(width);
  } else {
    place[0] = pixel / size, place[1] = pixel % size % width, place[2] = pixel % size / width;
  }
}

// Ray s of pixel p. A pixel outside the images has rays that are no numbers: they meet nothing, the loss shows it at once,
// and no host read is needed to check.
template <class T>
HOST_DEVICE void make_camera_ray(const CameraRaysArgs<T>& a, int64_t p, int64_t s, T* origin, T* direction) {
  const int64_t pixel = a.pixel_indices[p];
  if (pixel < 0 || pixel >= a.num_cameras * a.width * a.height) {
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) origin[axis] = direction[axis] = T(NAN);
    return;
  }
  int64_t place[3];
  locate_pixel(pixel, a.width, a.height, place);
  const T* pose = a.c2w + 12 * place[0];
  const T* lens = a.intrinsics + 4 * place[0];
  const T x = (T(place[1]) + T(0.5) - lens[2] + a.subpixels[2 * s]) / lens[0];
  const T y = (T(place[2]) + T(0.5) - lens[3] + a.subpixels[2 * s + 1]) / lens[1];
  T through[3], square = T(0);
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    through[axis] = pose[4 * axis] * x + pose[4 * axis + 1] * -y + -pose[4 * axis + 2];
    square += through[axis] * through[axis];
  }
  const T length = max2(std::sqrt(square), T(1e-12));
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    origin[axis] = pose[4 * axis + 3];
    direction[axis] = through[axis] / length;
  }
}

// All rays of pixel p, where they belong.
template <class T>
HOST_DEVICE void make_camera_rays(const CameraRaysArgs<T>& a, int64_t p) {
  for (int64_t s = 0; s < a.rays_per_pixel; ++s) {
    const int64_t r = p * a.rays_per_pixel + s;
    make_camera_ray(a, p, s, a.origins + 3 * r, a.directions + 3 * r);
  }
}

}  // namespace nerf
