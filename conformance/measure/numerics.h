// SPDX-License-Identifier: BSD-3-Clause
// numerics.h — single steps of wgmma on values of all sizes, recorded, to fit a model of the
// tensor cores' accumulation.
#pragma once

#include <string>
#include <vector>

#include "conformance/cases/case.h"
#include "runtime/gpu_runtime.h"

namespace fa3::selftest {

struct Recording {
  std::string name;  // "bf16"
  Bytes bytes;       // of each launch: A [64][k], B [64][k], C [64][64], D [64][64]
};

// What the bytes of a recording mean.
std::string recording_layout();

std::vector<Program> numerics_programs();

// One recording per floating type; what was recorded before an error stays in `recordings`.
Status record_numerics(GpuRuntime& runtime, uint64_t seed, std::vector<Recording>& recordings);

}  // namespace fa3::selftest
