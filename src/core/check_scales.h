// SPDX-License-Identifier: BSD-3-Clause
// check_scales.h — where the scale of an element lies, and the values that scales may have.
#pragma once

#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// The scales and offsets of one row of an 8-bit tensor.
struct RowScales {
  const float* scale = nullptr;   // of its blocks of columns; nullptr = 1
  const float* offset = nullptr;  // of its columns; nullptr = 0
  int64_t cols = 0;               // columns of a block

  float scale_of(int64_t column) const { return scale == nullptr ? 1 : scale[column / cols]; }
  float offset_of(int64_t column) const { return offset == nullptr ? 0 : offset[column]; }
};

// Of row i of sequence b, whose first row is `begin`, in a head of kQ, kK, kV or kCodes.
RowScales scales_of(const Problem& problem, const Buffers& buffers, TensorId id, int64_t b,
                    int64_t begin, int64_t i, int64_t head);

// The scales in host memory of all rows that count: INVALID_ARGUMENT names the first that is not
// finite and > 0. Lengths were checked before.
Status check_scales(const Problem& problem, const Buffers& buffers);

}  // namespace fa3
