// index_add on the CPU, without atomics: each core owns a part of dst, a range of columns where slices are long, else
// a range of target rows, and adds to it in the order of the rows. So the sums do not depend on the number of cores.
#include "../portable/index_add.h"

namespace nerf::cpu {
namespace {

constexpr int64_t kColumns = 16;          // fewer of them are not worth a core
constexpr int64_t kSerialWork = 1 << 14;  // elements that one core adds in the time that it takes to wake another

struct Part {
  int64_t first_element, end_element, first_target, end_target;
};

template <class T>
void add(T& target, Wide<T> alpha, T value) {
  target = narrow<T>(widen(target) + alpha * widen(value));
}

// Elements of a slice that follow each other in both memories.
template <class T>
void add_run(T* __restrict__ dst, const T* __restrict__ src, Wide<T> alpha, int64_t count) {
  for (int64_t c = 0; c < count; ++c) add(dst[c], alpha, src[c]);
}

template <class T>
void add_row(const IndexAddArgs<T>& a, const SliceWalk<int64_t>& walk, const Part& part, T* dst_row, const T* src_row) {
  const int64_t length = a.slice.size[0], dst_step = a.slice.dst_stride[0], src_step = a.slice.src_stride[0];
  for (int64_t e = part.first_element; e < part.end_element;) {
    int64_t d, s;
    walk.locate(e, d, s);
    const int64_t count = min2(a.slice.count == 1 ? length : length - e % length, part.end_element - e);
    if (dst_step == 1 && src_step == 1) add_run(dst_row + d, src_row + s, a.alpha, count);
    else
      for (int64_t c = 0; c < count; ++c) add(dst_row[d + c * dst_step], a.alpha, src_row[s + c * src_step]);
    e += count;
  }
}

// One number of each row, for rows that lie inside of the slices.
template <class T, class Index>
void add_numbers(const IndexAddArgs<T>& a, const Part& part, const Index* __restrict__ index, T* __restrict__ dst,
                 const T* __restrict__ src) {
  const int64_t first = part.first_target, count = part.end_target - part.first_target;
  const int64_t num_rows = a.num_rows, dst_step = a.dst_row_stride, src_step = a.src_row_stride;
  const Wide<T> alpha = a.alpha;
  for (int64_t i = 0; i < num_rows; ++i)
    if (uint64_t(index[i] - first) < uint64_t(count)) add(dst[index[i] * dst_step], alpha, src[i * src_step]);
}

template <class T>
void add_part(const IndexAddArgs<T>& a, const SliceWalk<int64_t>& walk, const Part& part) {
  if (a.rows_inside) {
    for (int64_t e = part.first_element; e < part.end_element; ++e) {
      int64_t d, s;
      walk.locate(e, d, s);
      if (a.narrow_index) add_numbers(a, part, static_cast<const int32_t*>(a.index), a.dst + d, a.src + s);
      else add_numbers(a, part, static_cast<const int64_t*>(a.index), a.dst + d, a.src + s);
    }
    return;
  }
  for (int64_t i = 0; i < a.num_rows; ++i) {
    const int64_t target = a.index_at(i);
    if (target >= part.first_target && target < part.end_target)
      add_row(a, walk, part, a.dst + target * a.dst_row_stride, a.src + i * a.src_row_stride);
  }
}

}  // namespace

template <class T>
void index_add(const IndexAddArgs<T>& a, Stream) {
  const SliceWalk<int64_t> walk(a.slice);
  const int64_t elements = a.slice.num_elements(), targets = a.num_targets;
  const int64_t parts = a.num_rows * elements <= kSerialWork ? 1 : num_threads();
  parallel_for(parts, 1, [&](int64_t part) {
    const bool columns = elements >= kColumns * parts;
    // Where share number i of the whole begins; this core has it all where it is not cut.
    const auto share = [&](int64_t whole, bool cut, int64_t i) {
      return cut ? whole * i / parts : i > part ? whole : 0;
    };
    add_part(a, walk,
             {share(elements, columns, part), share(elements, columns, part + 1), share(targets, !columns, part),
              share(targets, !columns, part + 1)});
  });
}

NERF_INSTANTIATE(index_add, IndexAddArgs)
template void index_add(const IndexAddArgs<BFloat16>&, Stream);

}  // namespace nerf::cpu
