// SPDX-License-Identifier: BSD-3-Clause
// Every program compiles for sm_90a as it is meant to: in registers, without advisories, its loops
// in the order in which they were written. ptxas gives up any of these silently or with a note.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "conformance/cases/cases.h"
#include "conformance/measure/measure.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"
#include "tests/kit/thorough.h"

namespace fa3 {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

// What an inner loop does on the tensor cores: GEMMs of tiles, each a fence, wgmmas in a row and a
// wait, and wgmmas with A in shared memory and in registers.
struct TensorWork {
  int products = 0, ss = 0, rs = 0;

  bool operator==(const TensorWork&) const = default;
};
void PrintTo(const TensorWork& work, std::ostream* out) {
  *out << work.products << " products, " << work.ss << " wgmma_ss, " << work.rs << " wgmma_rs";
}

struct Row {
  const char* name;
  const char* header;
  const char* expression;
  std::vector<TensorWork> loops;
};
const Row kRows[] = {
    {"gemm_bf16",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kBf16, 256, 3, false, false}>",
     {{1, 4, 0}}},
    {"gemm_f16_b_rows_along_n",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kF16, 192, 3, true, false}>",
     {{1, 4, 0}}},
    {"gemm_e4m3",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kE4m3, 128, 4, false, false}>",
     {{1, 4, 0}}},
    {"gemm_bf16_a_in_registers",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kBf16, 128, 4, true, true}>",
     {{1, 0, 4}}},
    {"gemm_e5m2_a_in_registers",
     "device/selftest/gemm.cuh",
     "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kE5m2, 64, 4, false, true}>",
     {{1, 0, 4}}},
    {"attention", "device/selftest/attention.cuh", "fa3::attention", {{2, 8, 8}}},
    {"chain8", "device/selftest/chain8.cuh", "fa3::chain8<false>", {}},
    {"chain8_transposed", "device/selftest/chain8.cuh", "fa3::chain8<true>", {}},
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Programs : public testing::TestWithParam<Row> {};

TEST_P(Programs, CompileAsMeant) {
  const Row& row = GetParam();
  const cuda::Compiled compiled =
      kit::compile(selftest::device_program(row.header, row.expression));
  EXPECT_THAT(compiled.log,
              HasSubstr("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"));
  EXPECT_THAT(compiled.log, Not(HasSubstr("(C75")));
  EXPECT_THAT(compiled.log, Not(HasSubstr("warning")));
  const kit::Code code(compiled.cubin.image, compiled.cubin.symbol);
  EXPECT_EQ(code.count(kit::kLoadLocal), 0u);
  EXPECT_EQ(code.count(kit::kStoreLocal), 0u);

  std::vector<TensorWork> loops;
  for (const kit::Loop loop : code.inner_wgmma_loops()) {
    TensorWork work;
    int waits = 0, moves = 0;  // into uniform registers, since the last wgmma of this GEMM
    bool begun = false;
    for (const kit::Instruction& instruction : code.in(loop)) {
      if (instruction.is_wgmma_fence()) {
        ++work.products;
        begun = false;
      }
      if (instruction.is_wgmma()) {
        EXPECT_EQ(begun ? moves : 0, 0) << "a descriptor is not built in uniform registers";
        begun = true;
        moves = 0;
        ++(instruction.is_wgmma_rs() ? work.rs : work.ss);
      }
      moves += instruction.opcode() == kit::kRegToUniform;
      waits += instruction.is_wgmma_wait();
    }
    EXPECT_EQ(waits, work.products);
    loops.push_back(work);
  }
  EXPECT_THAT(loops, ElementsAreArray(row.loops));
}

INSTANTIATE_TEST_SUITE_P(All, Programs, testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

// ptxas hoists a clock read unless it depends on something: it must depend on try_wait's answer.
TEST(MeasuringPrograms, TryWait_IsAnsweredBeforeTheClockIsRead) {
  const cuda::Compiled compiled = kit::compile(
      selftest::device_program("device/selftest/rates.cuh", "fa3::selftest::wait_limit"));
  const kit::Code code(compiled.cubin.image, compiled.cubin.symbol);
  ASSERT_GE(code.count(kit::kClock), 2u);
  std::vector<int> order;  // from the try_wait to the second clock
  for (const kit::Instruction& instruction : code.instructions()) {
    const int opcode = instruction.opcode();
    if (order.empty() ? opcode == kit::kTryWait : order.back() != kit::kClock) {
      order.push_back(opcode);
    }
  }
  EXPECT_THAT(order, testing::AnyOf(testing::Contains(int{kit::kExit}),
                                    testing::Contains(int{kit::kBranch})));
  ASSERT_FALSE(order.empty());
  EXPECT_EQ(order.back(), kit::kClock);
}

// Programs of the conformance cases: many and small, so those of a file are compiled together.
struct Batch {
  std::string name, header;
  std::set<std::string> expressions;
};
void PrintTo(const Batch& batch, std::ostream* out) { *out << batch.name; }

std::vector<Batch> batches() {
  constexpr size_t kMost = 40;
  std::map<std::string, std::set<std::string>> programs;
  for (const selftest::Case& test : selftest::all_cases()) {
    programs[test.program.header].insert(test.program.expression);
  }
  for (const Program& program : selftest::measuring_programs()) {
    programs[program.header].insert(program.expression);
  }
  std::vector<Batch> batches;
  for (const auto& [header, expressions] : programs) {
    const std::string stem = std::filesystem::path(header).stem();
    size_t count = 0;
    for (const std::string& expression : expressions) {
      if (count++ % kMost == 0) {
        batches.push_back({stem + "_" + std::to_string(count / kMost), header, {}});
      }
      batches.back().expressions.insert(expression);
    }
  }
  return batches;
}

class ConformanceCases : public testing::TestWithParam<Batch> {};

TEST_P(ConformanceCases, CompileAsMeant) {
  const Batch& batch = GetParam();
  std::vector<std::string> expressions;
  for (size_t i = 0; const std::string& expression : batch.expressions)
    if (kit::due(i++, 4)) expressions.push_back(expression);
  if (expressions.empty()) GTEST_SKIP() << "one program";
  const kit::Translation all = kit::translate("#include \"" + batch.header + "\"\n", expressions,
                                              &selftest::device_headers());
  EXPECT_THAT(all.log, Not(HasSubstr("(C75")));
  EXPECT_THAT(all.log, Not(HasSubstr("warning")));
  const std::regex stack(R"((\d+ bytes stack frame, \d+ bytes spill stores))");
  size_t kernels = 0;
  for (std::sregex_iterator i(all.log.begin(), all.log.end(), stack), end; i != end; ++i) {
    EXPECT_EQ(i->str(), "0 bytes stack frame, 0 bytes spill stores");
    ++kernels;
  }
  EXPECT_GE(kernels, expressions.size());  // functions that stay calls have a line, too
}

INSTANTIATE_TEST_SUITE_P(All, ConformanceCases, testing::ValuesIn(batches()),
                         [](const auto& batch) { return batch.param.name; });

TEST(ProgramFiles, EachIsCompiled) {
  std::set<std::string> files;
  std::set<std::string> compiled{
      "device/sm90/fwd/fwd.cuh",  // fwd_programs_test.cpp
      "device/sm90/fwd/v_image.cuh",
      // bwd_programs_test.cpp
      "device/sm90/bwd/bound.cuh", "device/sm90/bwd/bwd.cuh", "device/sm90/bwd/delta.cuh",
      "device/sm90/bwd/dq.cuh", "device/sm90/bwd/sinks.cuh",
      // decode_programs_test.cpp
      "device/sm90/decode/decode.cuh", "device/sm90/decode/combine.cuh",
      // merge_programs_test.cpp
      "device/sm90/merge/merge.cuh", "device/sm90/append/append.cuh",
      // mask_programs_test.cpp
      "device/sm90/bwd/mask_gradient.cuh", "device/sm90/mask/mask_bits.cuh",
      "device/sm90/mask/mask_image.cuh",
      // quantize_programs_test.cpp
      "device/sm90/fwd/score_offset.cuh", "device/sm90/quantize/codes.cuh",
      "device/sm90/quantize/maxima.cuh", "device/sm90/quantize/means.cuh",
      "device/sm90/quantize/rotated.cuh", "device/sm90/ablation/fwd_ablation.cuh"};
  for (const auto* const set : {&cuda::device_headers(), &selftest::device_headers()}) {
    for (const DeviceHeader& header : set->headers) {
      if (std::string(header.path).ends_with(".cuh")) files.insert(header.path);
    }
  }
  for (const Row& row : kRows) compiled.insert(row.header);
  for (const Batch& batch : batches()) compiled.insert(batch.header);
  EXPECT_EQ(compiled, files)
      << "the rows above, the conformance cases and the .cuh files of src and conformance differ";
}

// The rows of gemm.cuh together use what a warp-specialised kernel needs.
TEST(ProgramFiles, GemmUsesTheWholeMachine) {
  const cuda::Compiled compiled =
      kit::compile(selftest::device_program(kRows[0].header, kRows[0].expression));
  const kit::Code code(compiled.cubin.image, compiled.cubin.symbol);
  for (const int opcode : {kit::kSetMaxReg, kit::kTmaLoad, kit::kTmaStore, kit::kStoreMatrix,
                           kit::kTryWait, kit::kArrive, kit::kConvert}) {
    EXPECT_GT(code.count(opcode), 0u) << std::hex << opcode;
  }
}

}  // namespace
}  // namespace fa3
