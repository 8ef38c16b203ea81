// SPDX-License-Identifier: BSD-3-Clause
// measure.h — what PTX leaves open and a GPU can answer: clocks, precision, limits. For a GPU only;
// the simulator has no speed and would repeat its own parameters.
#pragma once

#include <string>
#include <vector>

#include "runtime/gpu_runtime.h"

namespace fa3::selftest {

struct Measurement {
  std::string name;  // "rate/ex2/results-per-clock"
  double value;
};

// The programs that measure() runs, so that they can be compiled beforehand.
std::vector<Program> measuring_programs();

// Measurements made before an error stay in `results`.
Status measure(GpuRuntime& runtime, std::vector<Measurement>& results);

// Its parts: measure_rates.cpp and measure_questions.cpp.
std::vector<Program> rate_programs();
Status measure_rates(GpuRuntime& runtime, std::vector<Measurement>& results);
std::vector<Program> question_programs();
Status measure_questions(GpuRuntime& runtime, std::vector<Measurement>& results);

}  // namespace fa3::selftest
