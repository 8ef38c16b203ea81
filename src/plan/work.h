// SPDX-License-Identifier: BSD-3-Clause
// work.h — how much a problem asks for, whoever computes it.
#pragma once

#include "core/problem.h"

namespace fa3 {

struct Work {
  double pairs = 0;   // (query, key) pairs that the mask shows, over batch and query heads
  double flops = 0;   // forward 2·pairs·(head_dim_qk + head_dim_v), backward 2.5 times that
  bool exact = true;  // false: an upper bound, since lengths lie in data that a plan does not read
};

Work work_of(const Problem& problem);

}  // namespace fa3
