// composite_rays on CUDA, for common channel counts: composite_lanes.cuh has the kernels. Other counts take the plain ones.
#include <cmath>
#include <type_traits>

#include "../math/channels.h"
#include "../portable/composite.h"
#include "pack.cuh"
// Behind those.
#include "composite_lanes.cuh"

namespace nerf::cuda {
namespace {

constexpr int kUpTo32 = -32;  // channels, more than 16: see Sharing

// body(constant) with the channel count, or kUpTo32, if it has a kernel, else plain(). Beside the features there are 0, where
// density is looked at alone, and 3, colors.
template <class Body, class Plain>
void with_row(const CompositeArgs<float>& a, const Body& body, const Plain& plain) {
  with_channels<0, 3, 4, 8, 16>(CommonChannels(), a.channels, body, [&] {
    if (is_fast(FastChannels(), a.channels)) return body(std::integral_constant<int, kUpTo32>());
    plain();
  });
}

// Those of features that a GPU trains.
template <class Body, class Plain>
void with_row(const CompositeArgs<BFloat16>& a, const Body& body, const Plain& plain) {
  if (a.channels == 16) return body(std::integral_constant<int, 16>());
  is_fast(FastChannels(), a.channels) ? body(std::integral_constant<int, kUpTo32>()) : plain();
}

// Packs start at whole 16 bytes where the arrays do; other arrays go to the plain kernels. So do more samples than half of
// what 32 bits count: lanes go on behind the end of their ray, up to the end of the longest one beside it.
template <class V>
bool is_plain(const CompositeArgs<V>& a) {
  if (a.num_samples > INT32_MAX / 2) return true;
  return a.channels % kPackSize<float> == 0 && !(is_pack_aligned(a.values) && is_pack_aligned(a.out_values) &&
                                                 is_pack_aligned(a.grad_out_values) && is_pack_aligned(a.grad_values));
}

// kernel(lanes, threads): the lanes of a ray as a constant, and that many threads for each ray. Where there is no ray, what
// belongs to none has to be cleared all the same.
template <class V, class Kernel>
void with_lanes(const CompositeArgs<V>& a, const Kernel& kernel) {
  const int64_t rays = max2<int64_t>(a.num_rays, 1);
  if (are_short(a.num_samples, a.num_rays)) return kernel(std::integral_constant<int, kShortRay>(), kShortRay * rays);
  kernel(std::integral_constant<int, 32>(), 32 * rays);
}

}  // namespace

// Nobody trains in double, and these kernels would take as long to compile as those in float.
template <>
void composite(const CompositeArgs<double>& a, Stream stream) {
  cuda_plain::composite(a, stream);
}

template <>
void composite_backward(const CompositeArgs<double>& a, Stream stream) {
  cuda_plain::composite_backward(a, stream);
}

template <class V>
void composite(const CompositeArgs<V>& a, Stream stream) {
  if (is_plain(a)) return cuda_plain::composite(a, stream);
  const auto fast = [&](auto channels) {
    with_lanes(a, [&](auto lanes, int64_t threads) {
      const auto kernel = composite_kernel<V, decltype(channels)::value, decltype(lanes)::value>;
      launch<kRayBlock>(kernel, threads, "composite_rays", stream, a, 1 - std::log(a.min_transmittance));
    });
  };
  with_row(a, fast, [&] { cuda_plain::composite(a, stream); });
}

template <class V>
void composite_backward(const CompositeArgs<V>& a, Stream stream) {
  if (is_plain(a)) return cuda_plain::composite_backward(a, stream);
  const auto fast = [&](auto channels) {
    with_lanes(a, [&](auto lanes, int64_t threads) {
      const auto kernel = composite_backward_kernel<V, decltype(channels)::value, decltype(lanes)::value>;
      launch<kRayBlock>(kernel, threads, "composite_rays_backward", stream, a);
    });
  };
  with_row(a, fast, [&] { cuda_plain::composite_backward(a, stream); });
}

template void composite(const CompositeArgs<float>&, Stream);
template void composite(const CompositeArgs<BFloat16>&, Stream);
template void composite_backward(const CompositeArgs<float>&, Stream);
template void composite_backward(const CompositeArgs<BFloat16>&, Stream);

}  // namespace nerf::cuda
