// PyTorch's current CUDA stream, without linking to libtorch_cuda.
//
// The function exists only where PyTorch was built with CUDA, so it is looked up at run time, once. A weak symbol would
// stay null in a library that was linked against CPU-only PyTorch.
#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include "operation.h"

namespace nerf {

Stream current_stream(const Tensor& t) {
  using GetStream = int32_t (*)(int32_t, void**);
  static const GetStream get_stream = [] {
    const char* name = "aoti_torch_get_current_cuda_stream";
#ifdef _WIN32
    HMODULE library = GetModuleHandleA("torch_cuda.dll");
    return library ? reinterpret_cast<GetStream>(GetProcAddress(library, name)) : nullptr;
#else
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library ? reinterpret_cast<GetStream>(dlsym(library, name)) : nullptr;
#endif
  }();
  Stream stream;
  stream.device = t.get_device_index();
  if (!get_stream || get_stream(stream.device, &stream.handle) != 0)
    throw std::runtime_error("PyTorch's current CUDA stream cannot be found: is this a PyTorch >= 2.10 with CUDA?");
  return stream;
}

}  // namespace nerf
