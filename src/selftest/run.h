// SPDX-License-Identifier: BSD-3-Clause
// run.h — runs a conformance case on a machine and compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/machine.h"
#include "selftest/case.h"

namespace fa3::selftest {

// Places the buffers, launches, and hands back what they hold then, in their order.
Status execute(Machine& machine, const Program& program, const Experiment& experiment,
               std::vector<Bytes>& after);

struct Outcome {
  bool passed = false;
  bool device_lost = false;    // the GPU runs nothing any more in this process
  std::string message;         // what differs, or why it did not run; "" when passed
  double max_error_ratio = 0;  // largest error as a fraction of its bound, where bounds are given
  size_t modelled = 0;         // elements for which the case has a model of the hardware's sum,
  size_t as_modelled = 0;      // and those that equal it bit for bit
  double compile_seconds = 0;
  double run_seconds = 0;  // from allocation to comparison
};

// `exact`: where a case has a model of the hardware's sum, that is what must come out, and the
// bound does not count.
Outcome run_case(Machine& machine, const Case& test, uint64_t seed, bool exact = false);

}  // namespace fa3::selftest
