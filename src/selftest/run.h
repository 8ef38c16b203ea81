// SPDX-License-Identifier: BSD-3-Clause
// run.h — runs a conformance case on a machine and compares.
#pragma once

#include <cstdint>
#include <string>

#include "backend/machine.h"
#include "selftest/case.h"

namespace fa3::selftest {

struct Outcome {
  bool passed = false;
  bool device_lost = false;    // the GPU runs nothing any more in this process
  std::string message;         // what differs, or why it did not run; "" when passed
  double max_error_ratio = 0;  // largest error as a fraction of its bound, where bounds are given
  double compile_seconds = 0;
  double run_seconds = 0;  // from allocation to comparison
};

// A refusal of the machine makes the case fail with its message; errors of the device (Error) are
// passed on, since nothing can follow them.
Outcome run_case(Machine& machine, const Case& test, uint64_t seed);

}  // namespace fa3::selftest
