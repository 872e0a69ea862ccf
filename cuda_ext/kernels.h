// What a device has to offer: the same functions in nerf::cpu, nerf::cuda and nerf::cuda_plain, over the same arguments.
// No torch in here, so that nvcc never sees a torch header.
#pragma once

#include "math/adam.h"
#include "math/camera_rays.h"
#include "math/cells.h"
#include "math/composite.h"
#include "math/contract_basis.h"
#include "math/distortion.h"
#include "math/index_add.h"
#include "math/march.h"
#include "math/march_visible.h"
#include "math/render_rays.h"
#include "math/sample_images.h"
#include "math/total_variation.h"
#include "math/trilinear.h"

namespace nerf {

// Where the work is queued. The CPU ignores it.
struct Stream {
  void* handle = nullptr;
  int device = 0;
};

#define NERF_DEVICE_FUNCTIONS                                                                               \
  /* Fills words and ray_offsets (clamped to the capacity unless that is 0) and counts the overflow. */     \
  template <class T> void march_count(const MarchArgs<T>& args, Stream stream);                             \
  /* Fills ray_indices, t_starts and t_ends for the offsets. */                                             \
  template <class T> void march_fill(const MarchArgs<T>& args, Stream stream);                              \
  template <class T> void trilinear(const TrilinearArgs<T>& args, Stream stream);                           \
  template <class T> void trilinear_backward(const TrilinearArgs<T>& args, Stream stream);                  \
  /* Forward and backward clear what lies behind ray_offsets[R]: samples that belong to no ray. */          \
  template <class T> void composite(const CompositeArgs<T>& args, Stream stream);                           \
  template <class T> void composite_backward(const CompositeArgs<T>& args, Stream stream);                  \
  template <class T> void contract_basis(const ContractBasisArgs<T>& args, Stream stream);                  \
  template <class T> void contract_basis_backward(const ContractBasisArgs<T>& args, Stream stream);         \
  template <class T> void camera_rays(const CameraRaysArgs<T>& args, Stream stream);                        \
  template <class T> void sample_images(const SampleImagesArgs<T>& args, Stream stream);                    \
  template <class T> void total_variation(const TotalVariationArgs<T>& args, Stream stream);                \
  template <class T> void adam(const AdamArgs<T>& args, Stream stream);                                     \
  template <class T> void cells(const CellsArgs<T>& args, Stream stream);                                   \
  template <class T> void cells_backward(const CellsArgs<T>& args, Stream stream);                          \
  /* Rows of src whose index lies outside of dst: the CPU throws before it writes, CUDA leaves them out. */ \
  template <class T> void index_add(const IndexAddArgs<T>& args, Stream stream);                            \
  template <class T> void distortion(const DistortionArgs<T>& args, Stream stream);                         \
  template <class T> void distortion_backward(const DistortionArgs<T>& args, Stream stream);                \
  template <class T> void march_visible_count(const MarchVisibleArgs<T>& args, Stream stream);              \
  template <class T> void march_visible_fill(const MarchVisibleArgs<T>& args, Stream stream);               \
  template <class T> void render_rays(const RenderRaysArgs<T>& args, Stream stream);                        \
  /* Waits for the stream and reads one integer. */                                                         \
  int64_t read(const int64_t* address, Stream stream);

namespace cpu {
NERF_DEVICE_FUNCTIONS
}
namespace cuda {
NERF_DEVICE_FUNCTIONS
// For the benchmark. Each thread reads one float at a random place (width 1), or eight threads a random line of 32 floats
// (width 32); places: a power of two.
void gather_at_random(const float* source, int64_t places, int width, float* sums, int64_t count, Stream stream);
// Each thread adds 1 to `width` consecutive floats, 1 or 4, at a random multiple of width; places: a power of two.
void add_at_random(float* target, int64_t places, int width, int64_t count, Stream stream);
}  // namespace cuda
namespace cuda_plain {
NERF_DEVICE_FUNCTIONS
}

// All serve float and double; this instantiates one of their functions for both.
#define NERF_INSTANTIATE(function, Args)              \
  template void function(const Args<float>&, Stream); \
  template void function(const Args<double>&, Stream);

}  // namespace nerf
