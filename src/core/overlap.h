// SPDX-License-Identifier: BSD-3-Clause
// overlap.h — do two strided views of memory share a byte? Exact, so that interleaved views of one
// packed buffer (q, k, v of a projection; dq, dk, dv next to each other) are told from real
// overlaps.
#pragma once

#include <cstdint>

#include "fa3/fa3.h"

namespace fa3 {

// A view: elements of `element` bytes at base + Σ index[d]·stride[d], stride in bytes ≥ 0, 0 ≤
// index[d] < extent[d]. Its span must fit 63 bits (make_problem checks).
struct View {
  uintptr_t base = 0;
  int64_t element = 1;
  int rank = 0;
  int64_t extent[FA3_MAX_RANK] = {};
  int64_t stride[FA3_MAX_RANK] = {};

  bool empty() const;          // no element
  int64_t span_bytes() const;  // from the first byte to past the last one; 0 when empty
};

// kUnknown: the search gave up at its limit (strides that no ordinary view has); treat it as
// kShared.
enum class Overlap { kDisjoint, kShared, kUnknown };

// Do the two views share a byte?
Overlap overlap(const View& a, const View& b);

// Do two different elements of the view share a byte?
Overlap self_overlap(const View& view);

}  // namespace fa3
