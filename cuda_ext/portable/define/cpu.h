// The bodies that follow become cpu::function: nothing faster is known there.
#define NERF_BODY(function, Args)                  \
  namespace cpu {                                  \
  template <class T>                               \
  void function(const Args<T>& a, Stream stream) { \
    portable::function(Device(stream), a);         \
  }                                                \
  }
#define NERF_BODY_FOR(function, Args, T) template void cpu::function(const Args<T>&, Stream);
