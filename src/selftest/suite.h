// SPDX-License-Identifier: BSD-3-Clause
// suite.h — a case on every machine at hand, and what came of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "runtime/machine.h"
#include "selftest/case.h"

namespace fa3::selftest {

// A machine that cases run on, for as long as it runs anything.
struct Target {
  Machine* machine;
  std::string lost_in;  // the case after which it ran nothing any more; "" = none
};

struct Verdict {
  fa3_case_status status = FA3_CASE_SKIPPED;
  std::string message;       // by machine; "" when passed
  bool device_lost = false;  // by this case
};

// Runs the case on each target that is not lost, and compares what they write where it has to be
// the same.
Verdict judge(std::vector<Target>& targets, const Case& test, uint64_t seed);

}  // namespace fa3::selftest
