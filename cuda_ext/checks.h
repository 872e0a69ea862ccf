// The torch side that all operations share: argument checks that name the argument, what was found and what is expected;
// allocation; the dispatch over the dtype.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "math/rounding.h"

namespace nerf {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Shape = std::vector<int64_t>;

constexpr int64_t kAny = -1;  // in an expected shape: any size

// std::invalid_argument reaches Python as ValueError.
[[noreturn]] inline void reject(const std::string& message) { throw std::invalid_argument(message); }

inline const char* dtype_name(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float: return "float32";
    case ScalarType::Double: return "float64";
    case ScalarType::Half: return "float16";
    case ScalarType::BFloat16: return "bfloat16";
    case ScalarType::Long: return "int64";
    case ScalarType::Int: return "int32";
    case ScalarType::Byte: return "uint8";
    case ScalarType::Bool: return "bool";
    default: return "another dtype";
  }
}

inline std::string device_name(const Tensor& t) {
  return t.is_cuda() ? "cuda:" + std::to_string(t.get_device_index()) : "cpu";
}

template <class Sizes>
std::string shape_name(const Sizes& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < size_t(sizes.size()); ++i)
    text += (i ? "," : "") + (sizes[i] == kAny ? std::string("*") : std::to_string(sizes[i]));
  return text + "]";
}

// Compilers and GPUs count on numbers at whole multiples of their size; a view into bytes may lie beside them.
inline void check_address(const char* name, const Tensor& t) {
  const auto address = reinterpret_cast<uintptr_t>(t.data_ptr());
  if (address % uintptr_t(t.element_size()) != 0)
    reject(std::string(name) + " is at an odd address, expected a multiple of " + std::to_string(t.element_size()) +
           " bytes; use .clone()");
}

// Checks one argument against the first one of the operation (its device) and the expected dtype and shape.
inline void check_argument(const char* name, const Tensor& t, const Tensor& first, ScalarType dtype,
                           const Shape& shape) {
  if (t.is_cuda() != first.is_cuda() || (t.is_cuda() && t.get_device_index() != first.get_device_index()))
    reject(std::string(name) + " is on " + device_name(t) + ", expected " + device_name(first) +
           " like the first argument; move it with .to()");
  if (t.scalar_type() != dtype)
    reject(std::string(name) + " is " + dtype_name(t.scalar_type()) + ", expected " + dtype_name(dtype));
  bool fits = t.dim() == int64_t(shape.size());
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] == kAny || shape[i] == t.size(int64_t(i));
  if (!fits) reject(std::string(name) + " has shape " + shape_name(t.sizes()) + ", expected " + shape_name(shape));
  check_address(name, t);
}

inline void check_floating(const char* name, const Tensor& t) {
  if (t.scalar_type() != ScalarType::Float && t.scalar_type() != ScalarType::Double)
    reject(std::string(name) + " is " + dtype_name(t.scalar_type()) + ", expected float32 or float64");
  check_address(name, t);
}

// Of numbers that may be stored with 16 bits, and are computed as float32 then.
inline void check_stored(const char* name, const Tensor& t) {
  if (t.scalar_type() != ScalarType::Half && t.scalar_type() != ScalarType::Float &&
      t.scalar_type() != ScalarType::Double)
    reject(std::string(name) + " is " + dtype_name(t.scalar_type()) + ", expected float16, float32 or float64");
  check_address(name, t);
}

inline ScalarType wide_dtype(const Tensor& stored) {
  return stored.scalar_type() == ScalarType::Half ? ScalarType::Float : stored.scalar_type();
}

inline void check_in_place(const char* name, const Tensor& t) {
  if (!t.is_contiguous()) reject(std::string(name) + " is written in place and must be contiguous");
}

// The stable ABI tells that an allocation failed, not why: what was asked for is all that can be said.
template <class Make>
Tensor allocate(const Shape& shape, ScalarType dtype, const Make& make) {
  try {
    return make();
  } catch (const std::exception&) {
    throw std::runtime_error("out of memory: " + shape_name(shape) + " of " + dtype_name(dtype) +
                             " could not be allocated");
  }
}

// The operations read row-major memory; other layouts are copied.
inline Tensor dense(const Tensor& t) {
  if (t.is_contiguous()) return t;
  const Shape shape(t.sizes().begin(), t.sizes().end());
  return allocate(shape, t.scalar_type(), [&] { return torch::stable::contiguous(t); });
}

inline Tensor empty(const Tensor& like, const Shape& shape, ScalarType dtype) {
  return allocate(shape, dtype, [&] { return torch::stable::new_empty(like, shape, dtype); });
}

inline Tensor zeros(const Tensor& like, const Shape& shape, ScalarType dtype) {
  return allocate(shape, dtype, [&] { return torch::stable::new_zeros(like, shape, dtype); });
}

// A backward op returns this for a gradient that nobody asked for.
inline Tensor no_gradient(const Tensor& like) { return empty(like, {0}, like.scalar_type()); }

template <class T>
T* data(const Tensor& t) {
  return static_cast<T*>(t.data_ptr());
}

// body(float()) or body(double()), by the dtype of t.
template <class Body>
void with_scalar(const Tensor& t, const Body& body) {
  if (t.scalar_type() == ScalarType::Float) body(float());
  else body(double());
}

// As with_scalar, or body(Float16()).
template <class Body>
void with_stored(const Tensor& t, const Body& body) {
  if (t.scalar_type() == ScalarType::Half) body(Float16());
  else with_scalar(t, body);
}

}  // namespace nerf
