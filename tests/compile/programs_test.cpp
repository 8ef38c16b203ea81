// SPDX-License-Identifier: BSD-3-Clause
// Every program compiles for sm_90a as it is meant to: in registers, without advisories, its loops
// in the order in which they were written. ptxas loses any of these silently or with a note.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"

namespace fa3 {
namespace {

using testing::HasSubstr;
using testing::Not;

struct GemmRow {
  const char* name;
  const char* config;
  int wgmmas;  // in the loop
  bool a_in_registers;
};
const GemmRow kGemms[] = {
    {"bf16", "kBf16, 256, 3, false, false", 4, false},
    {"f16_b_rows_along_n", "kF16, 192, 3, true, false", 4, false},
    {"e4m3", "kE4m3, 128, 4, false, false", 4, false},
    {"bf16_a_in_registers", "kBf16, 128, 4, true, true", 4, true},
    {"e5m2_a_in_registers", "kE5m2, 64, 4, false, true", 4, true},
};

void PrintTo(const GemmRow& row, std::ostream* out) { *out << row.name; }

class Gemm : public testing::TestWithParam<GemmRow> {};

TEST_P(Gemm, CompilesAsMeant) {
  const GemmRow& row = GetParam();
  const cuda::Compiled compiled =
      kit::compile({"device/selftest/gemm.cuh",
                    std::string("fa3::gemm<fa3::GemmConfig{fa3::MmaType::") + row.config + "}>"});
  EXPECT_THAT(compiled.log,
              HasSubstr("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"));
  EXPECT_THAT(compiled.log, Not(HasSubstr("(C75")));

  const kit::Code code(compiled.cubin.image, compiled.cubin.symbol);
  EXPECT_EQ(code.count(kit::kLoadLocal), 0u);
  EXPECT_EQ(code.count(kit::kStoreLocal), 0u);
  EXPECT_EQ(code.count(kit::kSetMaxReg), 2u);
  EXPECT_GT(code.count(kit::kTmaLoad), 0u);
  EXPECT_GT(code.count(kit::kTmaStore), 0u);
  EXPECT_GT(code.count(kit::kStoreMatrix), 0u);

  const std::vector<kit::Loop> loops = code.inner_wgmma_loops();
  ASSERT_EQ(loops.size(), 1u);
  int wgmmas = 0, fences = 0, waits = 0;
  for (const kit::Instruction& instruction : code.in(loops[0])) {
    if (instruction.is_wgmma()) {
      ++wgmmas;
      EXPECT_EQ(instruction.is_wgmma_rs(), row.a_in_registers);
    }
    fences += instruction.is_wgmma_fence();
    waits += instruction.is_wgmma_wait();
    if (wgmmas > 0 && wgmmas < row.wgmmas) {
      EXPECT_NE(instruction.opcode(), kit::kRegToUniform) << "behind wgmma " << wgmmas;
    }
  }
  EXPECT_EQ(wgmmas, row.wgmmas);
  EXPECT_EQ(fences, 1);
  EXPECT_EQ(waits, 1);
}

INSTANTIATE_TEST_SUITE_P(Programs, Gemm, testing::ValuesIn(kGemms),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace fa3
