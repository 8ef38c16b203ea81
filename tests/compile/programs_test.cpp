// SPDX-License-Identifier: BSD-3-Clause
// Every program compiles for sm_90a as it is meant to: in registers, without advisories, its loops
// in the order in which they were written. ptxas gives up any of these silently or with a note.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"

namespace fa3 {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

struct Row {
  const char* name;
  const char* header;
  const char* expression;
  std::vector<int> wgmmas;  // in each inner loop, one fence and one wait around them
  bool a_in_registers = false;
};
const Row kRows[] = {
    {"gemm_bf16",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kBf16, 256, 3, false, false}>",
     {4}},
    {"gemm_f16_b_rows_along_n",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kF16, 192, 3, true, false}>",
     {4}},
    {"gemm_e4m3",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kE4m3, 128, 4, false, false}>",
     {4}},
    {"gemm_bf16_a_in_registers",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kBf16, 128, 4, true, true}>",
     {4},
     true},
    {"gemm_e5m2_a_in_registers",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kE5m2, 64, 4, false, true}>",
     {4},
     true},
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Programs : public testing::TestWithParam<Row> {};

TEST_P(Programs, CompileAsMeant) {
  const Row& row = GetParam();
  const cuda::Compiled compiled = kit::compile({row.header, row.expression});
  EXPECT_THAT(compiled.log,
              HasSubstr("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"));
  EXPECT_THAT(compiled.log, Not(HasSubstr("(C75")));
  const kit::Code code(compiled.cubin.image, compiled.cubin.symbol);
  EXPECT_EQ(code.count(kit::kLoadLocal), 0u);
  EXPECT_EQ(code.count(kit::kStoreLocal), 0u);

  std::vector<int> wgmmas;
  for (const kit::Loop loop : code.inner_wgmma_loops()) {
    int products = 0, moves = 0, moves_between = 0, fences = 0, waits = 0;
    for (const kit::Instruction& instruction : code.in(loop)) {
      if (instruction.is_wgmma()) {
        if (products++ > 0) moves_between += moves;
        moves = 0;
        EXPECT_EQ(instruction.is_wgmma_rs(), row.a_in_registers);
      }
      moves += instruction.opcode() == kit::kRegToUniform;
      fences += instruction.is_wgmma_fence();
      waits += instruction.is_wgmma_wait();
    }
    wgmmas.push_back(products);
    EXPECT_EQ(moves_between, 0) << "descriptors are not built in uniform registers";
    EXPECT_EQ(fences, 1);
    EXPECT_EQ(waits, 1);
  }
  EXPECT_THAT(wgmmas, ElementsAreArray(row.wgmmas));
}

INSTANTIATE_TEST_SUITE_P(All, Programs, testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ProgramFiles, EachHasARow) {
  std::set<std::string> files, rows;
  for (const cuda::DeviceHeader& header : cuda::device_headers()) {
    if (std::string(header.path).ends_with(".cuh")) files.insert(header.path);
  }
  for (const Row& row : kRows) rows.insert(row.header);
  EXPECT_EQ(rows, files) << "programs_test.cpp and the .cuh files of src/device differ";
}

// The rows of gemm.cuh together use what a warp-specialised kernel needs.
TEST(ProgramFiles, GemmUsesTheWholeMachine) {
  const cuda::Compiled compiled = kit::compile({kRows[0].header, kRows[0].expression});
  const kit::Code code(compiled.cubin.image, compiled.cubin.symbol);
  for (const int opcode : {kit::kSetMaxReg, kit::kTmaLoad, kit::kTmaStore, kit::kStoreMatrix,
                           kit::kTryWait, kit::kArrive, kit::kConvert}) {
    EXPECT_GT(code.count(opcode), 0u) << std::hex << opcode;
  }
}

}  // namespace
}  // namespace fa3
