// SPDX-License-Identifier: BSD-3-Clause
// run.h — runs a conformance case on a GPU or in the simulator and compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/cases/case.h"
#include "runtime/gpu_runtime.h"

namespace fa3::selftest {

// Places the buffers, launches, and returns their contents afterwards, in their order.
Status execute(GpuRuntime& runtime, const Program& program, const Experiment& experiment,
               std::vector<Bytes>& after);

struct Outcome {
  bool passed = false;
  bool device_lost = false;    // the GPU runs nothing more in this process
  std::string message;         // what differs, or why it did not run; "" when passed
  double max_error_ratio = 0;  // largest error as a fraction of its bound, where bounds are given
  std::vector<Bytes> after;    // what the buffers hold; empty when it did not run
};

Outcome run_case(GpuRuntime& runtime, const Case& test, uint64_t seed);

// How the buffers of one case differ between two runs; "" when they do not. Values that the case
// gives a bound for are not compared: both may be right and differ.
std::string compare_runs(const Case& test, uint64_t seed, const std::vector<Bytes>& a,
                         const std::vector<Bytes>& b);

}  // namespace fa3::selftest
