// SPDX-License-Identifier: BSD-3-Clause
// suite.h — a case on every available device, and the result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/cases/case.h"
#include "fa3/conformance.h"
#include "runtime/gpu_runtime.h"

namespace fa3::selftest {

// A device that cases run on, for as long as it runs anything.
struct Target {
  GpuRuntime* runtime;
  std::string lost_in;  // the case after which it ran nothing more; "" = none
};

struct Verdict {
  fa3_conformance_status status = FA3_CONFORMANCE_SKIPPED;
  std::string message;       // by device; "" when passed
  bool device_lost = false;  // by this case
};

// Runs the case on each target that is not lost, and compares the outputs that have to be
// the same.
Verdict judge(std::vector<Target>& targets, const Case& test, uint64_t seed);

}  // namespace fa3::selftest
