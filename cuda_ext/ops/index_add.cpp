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

// Two tensors with gaps may interleave without sharing anything, as columns of one matrix do. They surely do not share if,
// for some pitch, all strides are whole pitches or small, and what the small ones reach lies apart within the pitch.
bool interleave(const Tensor& dst, const Tensor& src, int64_t pitch) {
  int64_t reach[2] = {0, 0};
  const Tensor* tensors[] = {&dst, &src};
  for (int i = 0; i < 2; ++i)
    for (int64_t d = 0; d < tensors[i]->dim(); ++d)
      if (tensors[i]->stride(d) % pitch != 0) reach[i] += (tensors[i]->size(d) - 1) * tensors[i]->stride(d);
  const int64_t bytes = static_cast<const char*>(src.data_ptr()) - static_cast<const char*>(dst.data_ptr());
  const int64_t element = dst.element_size();  // signed, as all that it meets
  const int64_t size = element * pitch, offset = (bytes % size + size) % size;  // of src behind dst
  return offset >= (reach[0] + 1) * element && offset + (reach[1] + 1) * element <= size;
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
  if (!memory_meets(dst, src)) return;
  for (int64_t d = 0; d < dst.dim(); ++d)
    if (dst.stride(d) > 0 && interleave(dst, src, dst.stride(d))) return;
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

void index_add(const Tensor& dst, int64_t dim, const Tensor& index, const Tensor& src, double alpha,
               bool deterministic) {
  check_dtypes(dst, index);
  check_address("dst", dst);
  dim = checked_dim(dst, dim);
  check_argument("index", index, dst, index.scalar_type(), {kAny});
  Shape shape(dst.sizes().begin(), dst.sizes().end());
  shape[dim] = index.size(0);
  check_argument("src", src, dst, dst.scalar_type(), shape);
  check_overlap(dst, src);
  const Tensor rows = dense(index);
  check_apart({{"dst", &dst}}, {{"index", &rows}});
  check_indices("index", rows, dst.size(dim));
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
    a.deterministic = deterministic;
    NERF_CALL(dst, index_add, a);
  });
}

NERF_OPERATION(index_add, "(Tensor(a!) dst, int dim, Tensor index, Tensor src, float alpha, bool deterministic=False) -> ()")

}  // namespace nerf
