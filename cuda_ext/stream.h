// Where the work of an operation is queued. The CPU ignores it.
#pragma once

namespace nerf {

struct Stream {
  void* handle = nullptr;
  int device = 0;
};

}  // namespace nerf

// All functions of the devices serve float and double; this instantiates one of them for both.
#define NERF_INSTANTIATE(function, Args)              \
  template void function(const Args<float>&, Stream); \
  template void function(const Args<double>&, Stream);
