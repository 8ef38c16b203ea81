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

// Appends the cases of a JSON file, whose format `fa3 bench --help` describes. Throws
// CliError{kBadInput} that names the file and the case.
void read_cases(const std::string& path, std::vector<Case>& cases);

}  // namespace fa3::cli
