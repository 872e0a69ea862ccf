// Row and column of a value in a table.
#pragma once

#include "host_device.h"

namespace nerf {

struct Place {
  int64_t row;
  unsigned column;
};

// Of value i. Nearly always 32 bits suffice, whose division takes a fraction of the time.
HOST_DEVICE Place place(int64_t i, int64_t columns) {
  const unsigned width = unsigned(columns);
  if (i <= UINT32_MAX) return {unsigned(i) / width, unsigned(i) % width};
  return {i / columns, unsigned(i % columns)};
}

}  // namespace nerf
