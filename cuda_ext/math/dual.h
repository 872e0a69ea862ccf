// Numbers that carry a derivative along: the value of an expression, and how fast it changes with one parameter.
#pragma once

#include "host_device.h"

namespace nerf {

template <class T>
struct Dual {
  T value, slope;

  HOST_DEVICE Dual() : value(T(0)), slope(T(0)) {}
  HOST_DEVICE Dual(T v) : value(v), slope(T(0)) {}  // a constant
  HOST_DEVICE Dual(T v, T s) : value(v), slope(s) {}

  friend HOST_DEVICE Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend HOST_DEVICE Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
  friend HOST_DEVICE Dual operator-(Dual a) { return {-a.value, -a.slope}; }
  friend HOST_DEVICE Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.slope * b.value + a.value * b.slope};
  }
  friend HOST_DEVICE Dual operator/(Dual a, Dual b) {
    const T quotient = a.value / b.value;
    return {quotient, (a.slope - quotient * b.slope) / b.value};
  }
};

template <class T>
HOST_DEVICE Dual<T> square_root(Dual<T> x) {  // of a number above 0
  const T root = std::sqrt(x.value);
  return {root, x.slope / (T(2) * root)};
}

template <class T>
HOST_DEVICE Dual<T> angle_of(Dual<T> y, Dual<T> x) {  // atan2
  const T square = x.value * x.value + y.value * y.value;
  return {std::atan2(y.value, x.value), (x.value * y.slope - y.value * x.slope) / square};
}

template <class T>
HOST_DEVICE Dual<T> smaller(Dual<T> a, Dual<T> b) {
  return b.value < a.value ? b : a;
}

template <class T>
HOST_DEVICE Dual<T> larger(Dual<T> a, Dual<T> b) {
  return b.value > a.value ? b : a;
}

}  // namespace nerf
