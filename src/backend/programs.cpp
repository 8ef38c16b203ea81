// SPDX-License-Identifier: BSD-3-Clause
// programs.cpp — the list of known kernels.
#include "backend/programs.h"

namespace fa3 {
namespace {

Program gemm(const char* config) {
  return {"device/selftest/gemm.cuh",
          std::string("fa3::gemm<fa3::GemmConfig{fa3::MmaType::") + config + "}>"};
}

}  // namespace

const std::vector<Program>& known_programs() {
  static const std::vector<Program> programs = {
      gemm("kBf16, 256, 3, false, false"),
      gemm("kF16, 192, 3, true, false"),
      gemm("kE4m3, 128, 4, false, false"),
      gemm("kBf16, 128, 4, true, true"),
      gemm("kE5m2, 64, 4, false, true"),
      {"device/selftest/attention.cuh", "fa3::attention"},
      {"device/selftest/chain8.cuh", "fa3::chain8<false>"},
      {"device/selftest/chain8.cuh", "fa3::chain8<true>"},
  };
  return programs;
}

}  // namespace fa3
