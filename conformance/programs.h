// SPDX-License-Identifier: BSD-3-Clause
// programs.h — the device code embedded in this library, and programs in it.
#pragma once

#include <string>
#include <vector>

#include "backend/programs.h"
#include "runtime/header_set.h"

namespace fa3::selftest {

// The files of conformance/device as they were when the library was built; generated.
const HeaderSet& device_headers();

// A kernel of one of these files: "device/selftest/gemm.cuh", "fa3::gemm<…>".
inline Program device_program(std::string header, std::string expression) {
  return {std::move(header), std::move(expression), kHopperArch, &device_headers()};
}

// Whole kernels that serve as examples: what `fa3 jit` knows as "samples/…".
const std::vector<NamedProgram>& samples();

}  // namespace fa3::selftest
