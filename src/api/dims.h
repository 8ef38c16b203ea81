// SPDX-License-Identifier: BSD-3-Clause
// dims.h — what the dimensions of a tensor are called, and their extents.
#pragma once

#include <cstdint>

#include "core/problem.h"
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

// What the extents along a tensor's axis are called: its rows ("seqlen_q", "total_kv", …), heads
// and columns.
struct AxisNames {
  const char* rows;
  const char* heads;
  const char* columns;
};
AxisNames names_of(const Problem& problem, TensorId id);

// What the tensor must look like in this problem. Of scales, slopes, masks and tables it also
// depends on the tensor that was given. The names and the rank need only problem.q.varlen and
// problem.kv.varlen.
Dims expected_dims(const Problem& problem, TensorId id, const fa3_tensor& given);

}  // namespace fa3
