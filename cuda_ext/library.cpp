// Registration of what ops/*.cpp hold, and what the library says of itself.
#include "ops/operation.h"

namespace nerf {

Registration::Namespace::Namespace(const char* space, const char* schema_text, const char* name, Boxed function)
    : schema(Library::Kind::FRAGMENT, space, nullptr, __FILE__, __LINE__),
      cpu(Library::Kind::IMPL, space, "CPU", __FILE__, __LINE__)
#ifdef NERF_WITH_CUDA
      ,
      cuda(Library::Kind::IMPL, space, "CUDA", __FILE__, __LINE__)
#endif
{
  schema.def(schema_text);
  cpu.impl(name, function);
#ifdef NERF_WITH_CUDA
  cuda.impl(name, function);
#endif
}

Registration::Registration(const char* schema, const char* name, Boxed fast, Boxed plain)
    : fast_("nerf", schema, name, fast), plain_("nerf_plain", schema, name, plain) {}

}  // namespace nerf

#ifdef _WIN32
#define NERF_VISIBLE extern "C" __declspec(dllexport)
#else
#define NERF_VISIBLE extern "C" __attribute__((visibility("default"), used))
#endif

// Read from the file by build.py: which sources this library was made of, and for which GPUs.
NERF_VISIBLE const char nerf_build_stamp[] = "nerf-build-stamp:" NERF_BUILD_STAMP;
