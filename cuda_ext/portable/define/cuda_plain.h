// The bodies that follow become cuda_plain::function; a file of cuda/ defines a faster cuda::function.
#undef NERF_BODY
#undef NERF_BODY_FOR
#define NERF_BODY(function, Args)                  \
  namespace cuda_plain {                           \
  template <class T>                               \
  void function(const Args<T>& a, Stream stream) { \
    portable::function(Device(stream), a);         \
  }                                                \
  }
#define NERF_BODY_FOR(function, Args, T) template void cuda_plain::function(const Args<T>&, Stream);
