// index_add: rows of src added to chosen rows of dst, in place, for any strides.
#include "../portable/index_add.h"

#include <algorithm>

#include "operation.h"

namespace nerf {
namespace {

void check_dtypes(const Tensor& dst, const Tensor& index) {
  const ScalarType dtype = dst.scalar_type();
  if (dtype != ScalarType::Float && dtype != ScalarType::Double && dtype != ScalarType::BFloat16)
    reject(std::string("dst is ") + dtype_name(dtype) + ", expected float32, float64 or bfloat16");
  if (index.scalar_type() != ScalarType::Long && index.scalar_type() != ScalarType::Int)
    reject(std::string("index is ") + dtype_name(index.scalar_type()) + ", expected int64 or int32");
}

int64_t checked_dim(const Tensor& dst, int64_t dim) {
  const int64_t dims = dst.dim();
  if (dims == 0) reject("dst has shape [], expected one dimension at least");
  if (dim < -dims || dim >= dims)
    reject("dim is " + std::to_string(dim) + ", expected " + std::to_string(-dims) + " to " + std::to_string(dims - 1));
  return dim < 0 ? dim + dims : dim;
}

// Numbers of memory from the first to the last one of a tensor.
int64_t span(const Tensor& t) {
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return t.numel() ? last + 1 : 0;
}

// Each number of dst has a place of its own if each dimension steps over all that the smaller steps reach.
void check_overlap(const Tensor& dst, const Tensor& src) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (int64_t d = 0; d < dst.dim(); ++d)
    if (dst.size(d) > 1) steps.emplace_back(dst.stride(d), dst.size(d));
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : steps) {
    if (stride <= reach && dst.numel())
      reject("dst has strides " + shape_name(dst.strides()) + " for shape " + shape_name(dst.sizes()) +
             ", expected each element in a place of its own; use .clone()");
    reach += (size - 1) * stride;
  }
  const auto begin = [](const Tensor& t) { return static_cast<const char*>(t.data_ptr()); };
  const auto end = [&](const Tensor& t) { return begin(t) + span(t) * t.element_size(); };
  // Two tensors with gaps may interleave without sharing anything, as columns of one matrix do.
  const bool dense = span(dst) == dst.numel() && span(src) == src.numel();
  const bool meet = begin(dst) < end(src) && begin(src) < end(dst);
  if (dst.numel() && src.numel() && meet && (dense || begin(dst) == begin(src)))
    reject("src has memory in common with dst, expected memory of its own; use .clone()");
}

// All dimensions but dim, from the smallest steps in dst to the largest, merged where possible.
SliceDims slice_dims(const Tensor& dst, const Tensor& src, int64_t dim) {
  std::vector<int64_t> order;
  for (int64_t d = dst.dim() - 1; d >= 0; --d)
    if (d != dim) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return dst.stride(a) < dst.stride(b); });
  SliceDims dims;
  for (const int64_t d : order)
    if (!dims.append(dst.size(d), dst.stride(d), src.stride(d)))
      reject("dst has " + std::to_string(dst.dim()) + " dimensions of unrelated strides, expected " +
             std::to_string(kMaxSliceDims) + " at most beside dim; use .contiguous()");
  return dims;
}

template <class Body>
void with_scalar_or_bfloat16(const Tensor& t, const Body& body) {
  if (t.scalar_type() == ScalarType::BFloat16) body(BFloat16());
  else with_scalar(t, body);
}

}  // namespace

void index_add(const Tensor& dst, int64_t dim, const Tensor& index, const Tensor& src, double alpha) {
  check_dtypes(dst, index);
  dim = checked_dim(dst, dim);
  check_argument("index", index, dst, index.scalar_type(), {kAny});
  Shape shape(dst.sizes().begin(), dst.sizes().end());
  shape[dim] = index.size(0);
  check_argument("src", src, dst, dst.scalar_type(), shape);
  check_overlap(dst, src);
  const Tensor rows = dense(index);
  with_scalar_or_bfloat16(dst, [&](auto scalar) {
    using T = decltype(scalar);
    IndexAddArgs<T> a = {};
    a.dst = data<T>(dst);
    a.src = data<T>(src);
    a.index = rows.data_ptr();
    a.narrow_index = rows.scalar_type() == ScalarType::Int;
    a.num_rows = rows.size(0);
    a.num_targets = dst.size(dim);
    a.dst_row_stride = dst.stride(dim);
    a.src_row_stride = src.stride(dim);
    a.slice = slice_dims(dst, src, dim);
    a.rows_inside = a.slice.count == 0 || (a.num_rows > 1 && a.src_row_stride < a.slice.src_stride[0]);
    a.alpha = Wide<T>(alpha);
    NERF_CALL(dst, index_add, a);
  });
}

NERF_OPERATION(index_add, "(Tensor(a!) dst, int dim, Tensor index, Tensor src, float alpha) -> ()")

}  // namespace nerf
