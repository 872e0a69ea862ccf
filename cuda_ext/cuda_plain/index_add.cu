// index_add on CUDA, plain: one thread and one atomic addition per number of src.
#include "../cuda/pack.cuh"

namespace nerf::cuda_plain {

using cuda::for_each;

template <class T>
void index_add(const IndexAddArgs<T>& a, Stream stream) {
  const int64_t elements = a.slice.num_elements();
  if (a.num_targets == 0 || a.num_rows * elements == 0) return;
  const SliceWalk<uint64_t> walk(a.slice);
  for_each(a.num_rows * elements, "index_add", stream, [a, walk, elements] __device__(int64_t i) {
    const int64_t row = i / elements, target = a.index_at(row);
    if (!a.in_range(target)) return;
    uint64_t d, s;
    walk.locate(uint64_t(i % elements), d, s);
    const T value = narrow<T>(a.alpha * widen(a.src[s + row * a.src_row_stride]));
    cuda::add_atomic(a.dst + d + target * a.dst_row_stride, cuda::Pack<T, 1>{value});
  });
}

NERF_INSTANTIATE(index_add, IndexAddArgs)
template void index_add(const IndexAddArgs<BFloat16>&, Stream);

}  // namespace nerf::cuda_plain
