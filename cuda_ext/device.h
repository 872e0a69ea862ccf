// What a portable body runs on, and the names by which ops/ calls it. A file of portable/ holds one body for all devices,
//
//   template <class T>
//   void scale_rows(const Device& device, const ScaleRowsArgs<T>& a) {
//     device.for_each("scale_rows", a.rows, [a] ON_DEVICE(int64_t n) { scale_row(a, n); });
//   }
//
// which g++ compiles to a loop over the cores and nvcc to a kernel with a thread for each index. NERF_PORTABLE(scale_rows,
// ScaleRowsArgs) declares cpu::, cuda:: and cuda_plain::scale_rows for float and double. The first two are the body unless
// cpu/scale_rows.cpp or cuda/scale_rows.cu is there, which then defines something faster; build.py looks. cuda_plain:: is
// always the body: fast kernels fall back on it. No torch in here, so that nvcc never sees a torch header.
#pragma once

#ifdef __CUDACC__
#include "cuda/device.cuh"
#define ON_DEVICE __device__
#else
#include "cpu/device.h"
#define ON_DEVICE
#endif

namespace nerf {

#ifdef __CUDACC__
using cuda::Device;
#else
using cpu::Device;
#endif

}  // namespace nerf

// Set before by portable/define/*.h in the files where bodies become code; elsewhere they stay declarations.
#ifndef NERF_BODY
#define NERF_BODY(function, Args)
#define NERF_BODY_FOR(function, Args, T)
#endif

#define NERF_DECLARE(device, function, Args)         \
  namespace device {                                 \
  template <class T>                                 \
  void function(const Args<T>& args, Stream stream); \
  }

#define NERF_PORTABLE(function, Args)      \
  NERF_DECLARE(cpu, function, Args)        \
  NERF_DECLARE(cuda, function, Args)       \
  NERF_DECLARE(cuda_plain, function, Args) \
  NERF_BODY(function, Args)                \
  NERF_BODY_FOR(function, Args, float)     \
  NERF_BODY_FOR(function, Args, double)
