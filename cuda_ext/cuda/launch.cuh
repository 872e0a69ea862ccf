// Owns grid, stream, device and error checks of every launch.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "../math/place.h"
#include "../stream.h"

namespace nerf::cuda {

// Of a block. A kernel that has many loads on their way says __launch_bounds__(threads, 1): told the threads alone, nvcc
// makes room for more blocks, and to save registers it lets loads wait for each other.
constexpr int kThreads = 256;

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// Makes the stream's device current, and the caller's again at the end of the scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (device != previous_) check(cudaSetDevice(device), "cudaSetDevice");
    else previous_ = -1;
  }
  ~DeviceGuard() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;
};

// Streaming multiprocessors of the stream's device.
inline int64_t processors(Stream stream) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, stream.device), "cudaDeviceGetAttribute");
  return count;
}

// Runs body(i) for every i below count, one thread each.
template <class Body>
__global__ void __launch_bounds__(kThreads) for_each_kernel(int64_t count, Body body) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) body(i);
}

// Launches kernel(args...) with enough blocks of kBlock threads for count threads. Nothing to do means no launch.
template <int kBlock = kThreads, class Kernel, class... Args>
void launch(Kernel kernel, int64_t count, const char* name, Stream stream, const Args&... args) {
  if (count <= 0) return;
  const DeviceGuard guard(stream.device);
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  if (blocks > INT32_MAX) throw std::runtime_error(std::string(name) + ": more than 2^31 blocks of threads");
  kernel<<<dim3(unsigned(blocks)), kBlock, 0, cudaStream_t(stream.handle)>>>(args...);
  check(cudaGetLastError(), name);
}

template <class Body>
void for_each(int64_t count, const char* name, Stream stream, const Body& body) {
  launch(for_each_kernel<Body>, count, name, stream, count, body);
}

}  // namespace nerf::cuda
