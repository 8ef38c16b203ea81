// SPDX-License-Identifier: BSD-3-Clause
// samples.cpp — the list of sample kernels.
#include "conformance/programs.h"

namespace fa3::selftest {
namespace {

constexpr const char* kSamples[][3] = {
// name, header, expression
#define FA3_GEMM(name, config)                                 \
  {                                                            \
    "samples/gemm/" name, "device/selftest/gemm.cuh",          \
        "fa3::gemm<fa3::GemmConfig{fa3::MmaType::" config "}>" \
  }
    FA3_GEMM("bf16", "kBf16, 256, 3, false, false"),
    FA3_GEMM("f16", "kF16, 192, 3, true, false"),
    FA3_GEMM("e4m3", "kE4m3, 128, 4, false, false"),
    FA3_GEMM("bf16_transposed", "kBf16, 128, 4, true, true"),
    FA3_GEMM("e5m2", "kE5m2, 64, 4, false, true"),
#undef FA3_GEMM
    {"samples/attention", "device/selftest/attention.cuh", "fa3::attention"},
    {"samples/chain8", "device/selftest/chain8.cuh", "fa3::chain8<false>"},
    {"samples/chain8_transposed", "device/selftest/chain8.cuh", "fa3::chain8<true>"},
};

}  // namespace

const std::vector<NamedProgram>& samples() {
  static const std::vector<NamedProgram> programs = [] {
    std::vector<NamedProgram> all;
    for (const auto& [name, header, expression] : kSamples)
      all.push_back({name, device_program(header, expression)});
    return all;
  }();
  return programs;
}

}  // namespace fa3::selftest
