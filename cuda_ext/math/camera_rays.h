// From a pixel to the rays through it: pinholes and lenses, OpenGL's axes (nerf/cameras/cameras.py).
//
// Compiled without fused multiply-add, like the walks along these rays (march.h).
#pragma once

#include "draw_pixels.h"
#include "lens.h"

namespace nerf {

// Legend: I cameras, P pixels, S rays per pixel.
template <class T>
struct CameraRaysArgs {
  const T* c2w;         // [I,3,4]: right, up and backward axis, center
  const T* intrinsics;  // [I,4]: fx, fy, cx, cy in pixels
  int64_t num_cameras;
  int64_t width, height;                               // of all images, if sizes is null
  const int64_t* sizes;                                // [I,2] width and height of each
  const int64_t* first_pixels;                         // [I+1] rising from 0 to the number of all pixels
  const int64_t* lens_models;                          // [I], null: pinholes
  const T *lens_coefficients, *lens_reach, *lens_rim;  // [I,6], [I], [I]
  int64_t iterations;                                  // of Newton's method, which inverts a lens
  const int64_t* pixel_indices;                        // [P]
  int64_t num_pixels;
  const T* subpixels;  // [S,2] from the pixel's center
  int64_t rays_per_pixel;
  T *origins, *directions;  // [P*S,3]
};

constexpr int64_t kLongestSide = INT32_MAX;  // of an image where sizes differ: so its pixels are counted

// Image, column and row of a pixel of images of one size. Nearly always 32 bits suffice, whose division is several times faster.
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

// The same of a pixel of the cameras; false outside their images.
template <class T>
HOST_DEVICE bool find_pixel(const CameraRaysArgs<T>& a, int64_t pixel, int64_t place[3]) {
  if (!a.sizes) {
    if (pixel < 0 || pixel >= a.num_cameras * a.width * a.height) return false;
    locate_pixel(pixel, a.width, a.height, place);
    return true;
  }
  if (a.num_cameras < 1) return false;
  const int64_t image = run_of(a.first_pixels, a.num_cameras, pixel), first = a.first_pixels[image];
  const int64_t width = min2(max2(a.sizes[2 * image], int64_t(1)), kLongestSide);
  const int64_t height = min2(max2(a.sizes[2 * image + 1], int64_t(1)), kLongestSide);
  if (first < 0 || pixel < first || pixel - first >= width * height) return false;
  locate_pixel(pixel - first, width, height, place);
  place[0] = image;
  return true;
}

// Ray s of pixel p. A pixel outside the images has rays that are no numbers: they meet nothing, the loss shows it at once,
// and no host read is needed to check.
template <class T>
HOST_DEVICE void make_camera_ray(const CameraRaysArgs<T>& a, int64_t p, int64_t s, T* origin, T* direction) {
  const int64_t pixel = a.pixel_indices[p];
  int64_t place[3];
  if (!find_pixel(a, pixel, place)) {
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) origin[axis] = direction[axis] = T(NAN);
    return;
  }
  const T* pose = a.c2w + 12 * place[0];
  const T* camera = a.intrinsics + 4 * place[0];
  T ahead[3] = {(T(place[1]) + T(0.5) - camera[2] + a.subpixels[2 * s]) / camera[0],
                (T(place[2]) + T(0.5) - camera[3] + a.subpixels[2 * s + 1]) / camera[1], T(1)};
  if (a.lens_models) {
    const Lens<T> lens = {a.lens_models[place[0]], a.lens_coefficients + kCoefficients * place[0],
                          a.lens_reach[place[0]]};
    lens.undistort(ahead[0], ahead[1], a.lens_rim[place[0]], a.iterations, ahead);
  }
  T through[3], square = T(0);
  NERF_UNROLL for (int axis = 0; axis < 3; ++axis) {
    through[axis] = pose[4 * axis] * ahead[0] + pose[4 * axis + 1] * -ahead[1] + pose[4 * axis + 2] * -ahead[2];
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
