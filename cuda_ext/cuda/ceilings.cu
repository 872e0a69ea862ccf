// What memory can do at best with random addresses: the ceilings that the benchmark holds our kernels against. Addresses
// come from a hash, so that no index has to be read.
#include "ceilings.h"
#include "float4.cuh"
#include "launch.cuh"

namespace nerf::cuda {
namespace {

// A number as good as random for each i (the finalizer of SplitMix64; Steele, Lea, Flood 2014).
__device__ uint64_t scrambled(uint64_t i) {
  i = (i + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  i = (i ^ (i >> 27)) * 0x94d049bb133111ebull;
  return i ^ (i >> 31);
}

}  // namespace

void gather_at_random(const float* source, int64_t places, int width, float* sums, int64_t count, Stream stream) {
  const auto keep = [=] __device__(int64_t i, float x) {  // the load; what is read is zero
    if (x != 0) sums[i % 1024] = x;
  };
  if (width == 1) {
    for_each(count, "gather_at_random", stream,
             [=] __device__(int64_t i) { keep(i, __ldg(source + (scrambled(uint64_t(i)) & uint64_t(places - 1)))); });
  } else {
    for_each(8 * count, "gather_at_random", stream, [=] __device__(int64_t i) {
      const int64_t line = int64_t(scrambled(uint64_t(i / 8)) & uint64_t(places - 1));
      const float4 x = __ldg(reinterpret_cast<const float4*>(source) + 8 * line + i % 8);
      keep(i, x.x + x.y + x.z + x.w);
    });
  }
}

void add_at_random(float* target, int64_t places, int width, int64_t count, Stream stream) {
  if (width == 1) {
    for_each(count, "add_at_random", stream,
             [=] __device__(int64_t i) { atomicAdd(target + (scrambled(uint64_t(i)) & uint64_t(places - 1)), 1.0f); });
  } else {
    for_each(count, "add_at_random", stream, [=] __device__(int64_t i) {
      add_float4(reinterpret_cast<float4*>(target) + (scrambled(uint64_t(i)) & uint64_t(places - 1)), {1, 1, 1, 1});
    });
  }
}

}  // namespace nerf::cuda
