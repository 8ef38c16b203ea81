// SPDX-License-Identifier: BSD-3-Clause
// cases.h — named problems for `fa3 bench`.
#pragma once

#include <string>
#include <vector>

#include "tools/verify/problem.h"

namespace fa3::cli {

struct Case {
  std::string name;
  verify::Config config;  // backward: only the backward is timed
};

// Appends the cases of a JSON file: an array of objects with name, op (forward, backward), dtype,
// batch, heads_q, heads_kv, seqlen_q, seqlen_kv, varlen_q, varlen_kv (lists), head_dim_qk,
// head_dim_v, mask (full, causal, window), left, right, softmax_scale, softcap. Throws
// CliError{kBadInput} that names the file and the case.
void read_cases(const std::string& path, std::vector<Case>& cases);

}  // namespace fa3::cli
