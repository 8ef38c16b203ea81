// SPDX-License-Identifier: BSD-3-Clause
// env.h — the registry of environment variables: the only place of the library that reads them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/status.h"

namespace fa3 {

// What the environment asks for, parsed. Read once, when a context is created.
struct Environment {
  int num_threads = 0;      // FA3_NUM_THREADS; 0 = unset
  std::optional<Isa> simd;  // FA3_SIMD: the instruction set to use; unset = the fastest
};

// INVALID_ARGUMENT naming variable, value and what is legal, when one is malformed.
Result<Environment> read_environment();

// One row per variable, for fa3_environment() and the documentation.
struct EnvironmentVariable {
  const char* name;
  const char* default_value;
  const char* meaning;
  std::optional<std::string> value;  // as it stands now
};
std::vector<EnvironmentVariable> environment_variables();

}  // namespace fa3
