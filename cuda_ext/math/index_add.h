// Adding rows of one tensor to chosen rows of another: dst[..., index[i], ...] += alpha * src[..., i, ...].
//
// All dimensions but the indexed one make up a slice. Both tensors walk it together, so dimensions that lie against
// each other in both memories are merged first: what is left of contiguous tensors is one dimension, or two where the
// indexed one lies between.
#pragma once

#include <algorithm>

#include "bfloat16.h"
#include "divider.h"

namespace nerf {

constexpr int kMaxSliceDims = 12;

// The dimensions of a slice, the one with the smallest steps in dst first; strides in elements.
struct SliceDims {
  int count = 0;
  int64_t size[kMaxSliceDims], dst_stride[kMaxSliceDims], src_stride[kMaxSliceDims];

  // Adds a dimension whose steps in dst are no smaller than those before, merged with the last one where both
  // memories allow. False: it is one too many.
  bool append(int64_t length, int64_t dst_step, int64_t src_step) {
    const int last = count - 1;
    if (length == 1) return true;
    if (count > 0 && dst_step == size[last] * dst_stride[last] && src_step == size[last] * src_stride[last]) {
      size[last] *= length;
      return true;
    }
    if (count == kMaxSliceDims) return false;
    size[count] = length, dst_stride[count] = dst_step, src_stride[count] = src_step;
    ++count;
    return true;
  }

  int64_t num_elements() const {
    int64_t product = 1;
    for (int d = 0; d < count; ++d) product *= size[d];
    return product;
  }
};

// The same for a kernel: where element number e of a slice lies in dst and in src. Elements are packs of `pack`
// neighbors.
template <class Offset>
struct SliceWalk {
  int last;
  Divider<Offset> size[kMaxSliceDims];
  Offset dst_stride[kMaxSliceDims], src_stride[kMaxSliceDims];

  explicit SliceWalk(const SliceDims& dims, int pack = 1) : last(std::max(dims.count - 1, 0)) {
    dst_stride[0] = src_stride[0] = 0;  // no dimension: one element
    for (int d = 0; d < dims.count; ++d) {
      const int here = d == 0 ? pack : 1;
      size[d] = Divider<Offset>(Offset(dims.size[d] / here));
      dst_stride[d] = Offset(dims.dst_stride[d] * here), src_stride[d] = Offset(dims.src_stride[d] * here);
    }
  }

  HOST_DEVICE void locate(Offset element, Offset& dst, Offset& src) const {
    dst = src = 0;
    for (int d = 0; d < last; ++d) {
      const Offset above = size[d].divide(element), here = element - above * size[d].divisor;
      dst += here * dst_stride[d], src += here * src_stride[d];
      element = above;
    }
    dst += element * dst_stride[last], src += element * src_stride[last];
  }
};

template <class T>
struct IndexAddArgs {
  T* dst;
  const T* src;
  const void* index;  // [I] int64, or int32 where narrow_index
  bool narrow_index;
  int64_t num_rows, num_targets;  // I rows of src go to rows 0 ... num_targets-1 of dst
  int64_t dst_row_stride, src_row_stride;
  SliceDims slice;
  bool rows_inside;  // the steps from row to row are the smallest ones in src
  Wide<T> alpha;
  bool deterministic;  // one order of additions on CUDA too

  HOST_DEVICE int64_t index_at(int64_t i) const {
    return narrow_index ? static_cast<const int32_t*>(index)[i] : static_cast<const int64_t*>(index)[i];
  }
  HOST_DEVICE bool in_range(int64_t target) const { return target >= 0 && target < num_targets; }
};

}  // namespace nerf
