// SPDX-License-Identifier: BSD-3-Clause
// measure.cpp — all measurements, those that may stop the GPU last.
#include "conformance/measure/measure.h"

namespace fa3::selftest {

std::vector<Program> measuring_programs() {
  std::vector<Program> programs = rate_programs();
  for (Program& program : question_programs()) programs.push_back(std::move(program));
  return programs;
}

Status measure(GpuRuntime& runtime, std::vector<Measurement>& results) {
  FA3_RETURN_IF_ERROR(measure_rates(runtime, results));
  return measure_questions(runtime, results);
}

}  // namespace fa3::selftest
