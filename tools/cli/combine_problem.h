// SPDX-License-Identifier: BSD-3-Clause
// combine_problem.h — calls of fa3_combine given by sizes on the command line, for `fa3 check`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parser.h"
#include "problem.h"
#include "tools/verify/combine.h"

namespace fa3::cli {

// Beside the sizes and types of ProblemOptions.
struct CombineOptions {
  std::string parts;  // a number, or "any": one of the seed's
  std::string layout;
  bool lse = true;
  double magnitude = 1;  // standard deviation of LSE
  int64_t alignment = 0;
  int64_t seed = 0;
};

// After parsing: throws CliError{kUsage} naming an option that means nothing for such a call.
void check_combine_usage(const Parser& parser);

// Odd seeds have LSE as (…, seqlen, heads) in memory. Throws CliError{kUsage}.
verify::CombineProblem make_combine_problem(const ProblemOptions& sizes,
                                            const CombineOptions& options);

// The arguments of that call without data, for questions that read none.
fa3_combine_args shapes_combine(const verify::CombineProblem& problem);

// Sizes in one line, and the command that checks the problem again.
std::string problem_text(const verify::CombineProblem& problem);
std::string replay_command(const verify::CombineProblem& problem, const std::string& layout,
                           const std::string& backend);

}  // namespace fa3::cli
