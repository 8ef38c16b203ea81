// SPDX-License-Identifier: BSD-3-Clause
// check.h — makes a problem, runs it on a backend, judges every output: for `fa3 check` and tests.
#pragma once

#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/combine.h"
#include "tools/verify/compare.h"
#include "tools/verify/problem.h"

namespace fa3::verify {

struct Report {
  bool ok = false;
  fa3_status status = FA3_OK;  // not OK: there is no verdict; of the call that failed, if one did
  std::string error;  // its message, or which guard bytes or inputs were changed; "" otherwise
  std::vector<OutputResult> outputs;

  // One line per output and error; for failures the command that repeats them.
  std::string text;
};

// The problem with the alignment that the backend's kernels ask for, where config asks for none.
Config aligned(Config config, fa3_backend backend);

// Runs config on context, whose backend is named in the replay command. A backward problem runs the
// forward first, for o and lse, and judges both.
Report check(const Config& config, fa3_context* context);
// repeat: the command that does so again.
Report check(const CombineProblem& problem, fa3_context* context, const std::string& repeat);

}  // namespace fa3::verify
