// SPDX-License-Identifier: BSD-3-Clause
// dims.h — what the dimensions of a tensor are called, and their extents.
#pragma once

#include <cstdint>

#include "fa3/fa3.h"

namespace fa3 {

// Named dimensions of a tensor, outermost first.
struct Dims {
  int rank = 0;
  const char* name[FA3_MAX_RANK] = {};
  int64_t extent[FA3_MAX_RANK] = {};

  void add(const char* dim_name, int64_t dim_extent) {
    name[rank] = dim_name;
    extent[rank++] = dim_extent;
  }
};

}  // namespace fa3
