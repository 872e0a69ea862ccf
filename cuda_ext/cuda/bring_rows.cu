// bring_rows on CUDA. Rows of 16 bits are in host memory: one block a processor keeps the bus busy and leaves room for what
// runs beside it. Other rows are on the device, and there are as many threads as there is to copy.
//
// Floor: the rows once over the bus, or once from memory.
#include "../portable/bring_rows.h"

namespace nerf::cuda {
namespace {

template <int kCount, class S>
__global__ void __launch_bounds__(kThreads) copy_kernel(int64_t packs, BringRowsArgs<S> a) {
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += int64_t(gridDim.x) * kThreads)
    copy_values<kCount>(a, i);
}

}  // namespace

template <class S>
void bring_rows_count(const BringRowsArgs<S>& a, Stream stream) {
  portable::bring_rows_count(Device(stream), a);
}

template <class S>
void bring_rows(const BringRowsArgs<S>& a, Stream stream) {
  portable::list_rows(Device(stream), a);
  const bool whole = begins_whole(a.grid) && begins_whole(a.values);
  with_several<S>(a.channels, whole, [&](auto several) {
    constexpr int kCount = decltype(several)::value;
    const int64_t packs = a.capacity * (a.channels / kCount);
    const int64_t most = sizeof(S) == 2 ? processors(stream) * kThreads : packs;
    launch(copy_kernel<kCount, S>, min2(packs, most), "bring_rows: copy", stream, packs, a);
  });
}

NERF_INSTANTIATE(bring_rows_count, BringRowsArgs)
NERF_INSTANTIATE(bring_rows, BringRowsArgs)
template void bring_rows_count(const BringRowsArgs<Float16>&, Stream);
template void bring_rows(const BringRowsArgs<Float16>&, Stream);

}  // namespace nerf::cuda
