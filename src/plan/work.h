// SPDX-License-Identifier: BSD-3-Clause
// work.h — how much work a problem is, on any backend.
#pragma once

#include "core/problem.h"

namespace fa3 {

struct Work {
  double pairs = 0;   // (query, key) pairs that the mask keeps, over batch and query heads
  double flops = 0;   // forward 2·pairs·(head_dim_qk + head_dim_v), backward 2.5 times that
  bool exact = true;  // false: an upper bound, since lengths lie in data that a plan does not read
};

Work work_of(const Problem& problem);

// Tiles of tile_q queries × tile_kv keys, over batch and query heads, when every sequence is as
// long as the longest.
struct Tiles {
  double visited = 0;  // some pair in it is visible
  double skipped = 0;
};

Tiles tiles_of(const Problem& problem, int64_t tile_q, int64_t tile_kv);

}  // namespace fa3
