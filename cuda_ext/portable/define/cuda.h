// The bodies that follow become cuda_plain::function, and cuda::function is the same: nothing faster is known.
#undef NERF_BODY
#undef NERF_BODY_FOR
#define NERF_BODY(function, Args)                  \
  namespace cuda_plain {                           \
  template <class T>                               \
  void function(const Args<T>& a, Stream stream) { \
    portable::function(Device(stream), a);         \
  }                                                \
  }                                                \
  namespace cuda {                                 \
  template <class T>                               \
  void function(const Args<T>& a, Stream stream) { \
    cuda_plain::function(a, stream);               \
  }                                                \
  }
#define NERF_BODY_FOR(function, Args, T)                      \
  template void cuda_plain::function(const Args<T>&, Stream); \
  template void cuda::function(const Args<T>&, Stream);
