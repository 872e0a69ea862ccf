// A patch of a photo and what another photo shows at its places: how unlike they are, and the derivative along a parameter
// with which these places move.
//
// A patch has 3x3 pixels, stride apart. With their n = 9 brightnesses h_k, and g_k at their places in the other photo, between
// its pixels' centers, both less their means:
//
//   e = sum h_k^2 / n,   e' = sum g_k^2 / n,   s = sqrt(e (e' + kLeastEnergy))
//   ncc = sum h_k g_k / (n s)                      normalized cross-correlation
//   error = (1 - ncc) e / (e + kPhotoNoise^2)      faint patches say less
//   d error / d g_k = -(h_k / s - ncc g_k / (e' + kLeastEnergy)) / n  e / (e + kPhotoNoise^2)
//
// Nothing is said, and there is no gradient, where a pixel lies outside of its photo or is transparent, where the patch is flat,
// and where 1 - ncc is so large that the patch will be hidden in the other photo.
#pragma once

#include "camera_rays.h"
#include "dual.h"

namespace nerf {

// As nerf/ops/compare_beside.py has them; brightness is in [0,1].
constexpr int kPatchPixels = 9;
constexpr double kHidden = 0.6, kFlat = 0.02, kPhotoNoise = 0.01, kLeastEnergy = 1e-6;
constexpr int kOpaqueByte = 128;
constexpr int64_t kLongestStride = 1 << 20;  // in pixels: sums with a column stay far below 2^63

struct Photo {
  int64_t first, width, height;
};

// The pixels of all photos in one row.
struct Photos {
  const uint8_t* images;        // [N,C], C 3 or 4
  const int64_t* sizes;         // [I,2] width and height
  const int64_t* first_pixels;  // [I+1]
  int64_t num_pixels, channels, num_images, stride;

  // False where there is no such photo, or its pixels are not among those of all.
  HOST_DEVICE bool find(int64_t image, Photo& photo) const {
    if (image < 0 || image >= num_images) return false;
    photo = {first_pixels[image], sizes[2 * image], sizes[2 * image + 1]};
    if (photo.first < 0 || photo.first > num_pixels || photo.width < 1 || photo.height < 1) return false;
    if (photo.width > kLongestSide || photo.height > kLongestSide) return false;
    return photo.width * photo.height <= num_pixels - photo.first;
  }

  // The mean of the colors of a pixel; false where it is transparent.
  template <class T>
  HOST_DEVICE bool brightness(int64_t pixel, T& mean) const {
    const uint8_t* color = images + pixel * channels;
    mean = T(int(color[0]) + int(color[1]) + int(color[2])) * T(1.0 / (3 * 255));
    return channels == 3 || color[3] >= kOpaqueByte;
  }
};

// What a photo shows at the place (u, v), between the centers of its pixels; false where that cannot be read.
template <class T>
HOST_DEVICE bool read_between(const Photos& photos, const Photo& photo, Dual<T> u, Dual<T> v, Dual<T>& shown) {
  const T x = u.value - T(0.5), y = v.value - T(0.5);
  if (!(x >= T(0) && y >= T(0) && x <= T(photo.width - 1) && y <= T(photo.height - 1))) return false;
  const int64_t column = min2(int64_t(x), max2(photo.width - 2, int64_t(0)));
  const int64_t row = min2(int64_t(y), max2(photo.height - 2, int64_t(0)));
  const T fx = x - T(column), fy = y - T(row);
  const int64_t right = photo.width > 1, below = photo.height > 1 ? photo.width : 0;  // 0: there is no next one
  const int64_t corner = photo.first + row * photo.width + column;
  T c00, c10, c01, c11;
  bool opaque = photos.brightness(corner, c00);
  opaque = photos.brightness(corner + right, c10) && opaque;
  opaque = photos.brightness(corner + below, c01) && opaque;
  opaque = photos.brightness(corner + below + right, c11) && opaque;
  const T by_u = (T(1) - fy) * (c10 - c00) + fy * (c11 - c01), by_v = (T(1) - fx) * (c01 - c00) + fx * (c11 - c10);
  const T value = (T(1) - fx) * ((T(1) - fy) * c00 + fy * c01) + fx * ((T(1) - fy) * c10 + fy * c11);
  shown = {value, by_u * u.slope + by_v * v.slope};
  return opaque;
}

// A patch here and there, less the means.
template <class T>
struct PatchPair {
  T here[kPatchPixels];
  Dual<T> there[kPatchPixels];

  // The patch around a pixel of its own photo, and in another photo at place_of(columns to the right, rows down, u, v). False
  // where a pixel of it cannot be read.
  template <class PlaceOf>
  HOST_DEVICE bool read(const Photos& photos, int64_t pixel, const Photo& own, const Photo& other,
                        const PlaceOf& place_of) {
    if (pixel < own.first || pixel - own.first >= own.width * own.height) return false;
    int64_t place[3];
    locate_pixel(pixel - own.first, own.width, own.height, place);
    const int64_t column = place[1], row = place[2];
    T mean_here = T(0), mean_there = T(0);
    NERF_UNROLL for (int k = 0; k < kPatchPixels; ++k) {
      const int64_t right = (k % 3 - 1) * photos.stride, down = (k / 3 - 1) * photos.stride;
      const int64_t u = column + right, v = row + down;
      if (u < 0 || u >= own.width || v < 0 || v >= own.height) return false;
      if (!photos.brightness(own.first + v * own.width + u, here[k])) return false;
      Dual<T> there_u, there_v;
      place_of(T(right), T(down), there_u, there_v);
      if (!read_between(photos, other, there_u, there_v, there[k])) return false;
      mean_here += here[k];
      mean_there += there[k].value;
    }
    NERF_UNROLL for (int k = 0; k < kPatchPixels; ++k) {
      here[k] -= mean_here / T(kPatchPixels);
      there[k].value -= mean_there / T(kPatchPixels);  // of the slopes nobody asks for the mean: numbers less theirs sum to 0
    }
    return true;
  }
};

// What a pair says: the error, and what its derivative is made of.
template <class T>
struct PatchError {
  T error, factor, scale, ncc, energy_there;  // factor e / (e + kPhotoNoise^2), scale s, energy_there e' + kLeastEnergy

  // False where nothing is said.
  HOST_DEVICE bool of(const PatchPair<T>& pair) {
    T energy = T(0), product = T(0);
    energy_there = T(0);
    NERF_UNROLL for (int k = 0; k < kPatchPixels; ++k) {
      energy += pair.here[k] * pair.here[k];
      energy_there += pair.there[k].value * pair.there[k].value;
      product += pair.here[k] * pair.there[k].value;
    }
    energy /= T(kPatchPixels);
    energy_there = energy_there / T(kPatchPixels) + T(kLeastEnergy);
    if (!(energy > T(kFlat * kFlat))) return false;
    factor = energy / (energy + T(kPhotoNoise * kPhotoNoise));
    scale = std::sqrt(energy * energy_there);
    ncc = product / (T(kPatchPixels) * scale);
    error = (T(1) - ncc) * factor;
    return T(1) - ncc < T(kHidden);
  }

  // The derivative of the error.
  HOST_DEVICE T slope(const PatchPair<T>& pair) const {
    T sum = T(0);
    NERF_UNROLL for (int k = 0; k < kPatchPixels; ++k)
      sum += (ncc * pair.there[k].value / energy_there - pair.here[k] / scale) * pair.there[k].slope;
    return sum * factor / T(kPatchPixels);
  }
};

}  // namespace nerf
