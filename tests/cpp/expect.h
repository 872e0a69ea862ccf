// What the programs of this folder share: how they complain, and their numbers.
#pragma once

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

inline int failures = 0;

inline void expect(bool holds, const char* what) {
  if (!holds) ++failures, std::printf("FAILED: %s\n", what);
}

inline void expect_near(double found, double expected, double tolerance, const char* what) {
  if (!(std::abs(found - expected) <= tolerance))
    ++failures, std::printf("FAILED: %s: found %.17g, expected %.17g\n", what, found, expected);
}

inline std::mt19937 generator(7);

inline double number(double low = 0, double high = 1) {
  return std::uniform_real_distribution<double>(low, high)(generator);
}

inline std::vector<double> numbers(size_t count, double low = 0, double high = 1) {
  std::vector<double> all(count);
  for (double& x : all) x = number(low, high);
  return all;
}
