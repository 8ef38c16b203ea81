// SPDX-License-Identifier: BSD-3-Clause
// tuning.h — which row of a kernel's table a user has measured to be the best for a problem. Plans
// follow it where they may (plan/sm90/fwd/rows.h) and choose by their own rule elsewhere.
#pragma once

#include <map>
#include <string>

#include "core/problem.h"

namespace fa3 {

struct Tuning {
  std::map<std::string, std::string> rows;  // by key_of(problem)

  // The row for a problem; nullptr = not measured.
  const std::string* row_of(const Problem& problem) const;
};

// What makes two problems one to a tuning: "forward bf16 batch 2 heads 16/4 head_dim 128/128 seqlen
// 4096/4096 causal". Strides and scales are not in it; of varlen problems, whose lengths change
// from call to call, the number of sequences and their mean length, to the nearest power of two.
std::string key_of(const Problem& problem);

}  // namespace fa3
