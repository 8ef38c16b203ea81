// SPDX-License-Identifier: BSD-3-Clause
// quantize_programs_test.cpp — the quantising kernels and the one for k_offset stay in registers,
// for every head dim of the forward's table, and turn rows of 16 bits on the tensor cores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/quantize/plan.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"
#include "tests/kit/thorough.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;
using testing::Not;

void expect_in_registers(const std::string& header, const std::vector<std::string>& expressions) {
  const kit::Translation all = kit::translate("#include \"" + header + "\"\n", expressions);
  EXPECT_THAT(all.log, Not(HasSubstr("warning")));
  for (size_t i = 0; i < expressions.size(); ++i) {
    const kit::Code code(all.cubin, all.symbols[i]);
    const auto has = [&](const char* text) {
      return expressions[i].find(text) != std::string::npos;
    };
    // Rotated rows of 256 columns that go through registers are one short.
    const bool wide = has(".head_dim = 256") && has("kHalves") && !has("RotatedConfig");
    EXPECT_LE(code.count(kit::kLoadLocal) + code.count(kit::kStoreLocal), wide ? 2u : 0u)
        << expressions[i];
    // Sums of columns take 64 of a Hadamard block at a time.
    const bool turns = !has(".hadamard = 0") && has("kNone") &&
                       (has("QuantizeConfig") || (has("quantize_means") && !has(".hadamard = 32")));
    size_t wgmmas = 0;
    for (const kit::Instruction& instruction : code.instructions())
      wgmmas += instruction.is_wgmma() ? 1 : 0;
    EXPECT_EQ(wgmmas > 0, turns) << expressions[i];
  }
}

class QuantizePrograms : public testing::TestWithParam<int64_t> {};

// What a plan takes for heads and blocks, turned, rotated and as they are.
TEST_P(QuantizePrograms, CompileWithoutSpills) {
  constexpr int64_t kHeads = 8;
  DeviceInfo gpu;
  gpu.multiprocessors = 132;
  std::map<std::string, std::vector<std::string>> of_header;
  // A scale a row, for 128, 200 and 256 rows; for a head, as it is and less the mean.
  for (const auto& [rows, mean] :
       {std::pair{1, false}, {128, false}, {200, false}, {256, false}, {0, false}, {0, true}}) {
    // As it is, turned, rotated and turned; the last with other tables, and in few heads.
    for (const int kind : {0, 1, 2, 3, 4}) {
      if (kind > 2 && rows != 1) continue;
      Problem p;
      p.op = FA3_OP_QUANTIZE;
      p.batch = 2, p.heads_q = p.heads_kv = kind == 4 ? 4 : kHeads,
      p.head_dim_qk = p.head_dim_v = GetParam();
      p.q.rows = p.q.max_seqlen = 1000;
      p.block_of(kCodes).rows = rows;
      p.rotation.hadamard = kind > 0 ? GetParam() & -GetParam() : 0;
      p.rotation.rotary_dim = kind > 1 ? GetParam() : 0;
      p.rotation.positions = 1000;
      p.layout[kX] = {FA3_BF16, 1000 * kHeads * GetParam(), kHeads * GetParam(), GetParam()};
      p.layout[kCodes] = p.layout[kX];
      p.layout[kCodes].dtype = kind == 1 ? FA3_I8 : FA3_F8_E4M3;
      p.layout[kScale] = {FA3_F32, 1000 * kHeads, 1, 1000};
      if (mean) p.layout[kOffset] = {FA3_F32, kHeads * GetParam(), 0, GetParam()};
      if (kind > 1)
        p.layout[kRotaryCos] =
            p.layout[kRotarySin] = {kind == 3 ? FA3_BF16 : FA3_F32, 0, GetParam() / 2, 0};
      const auto plans = make_quantize_plans(p, gpu);
      ASSERT_TRUE(plans.ok()) << plans.status().message;
      for (const QuantizePlan& plan : plans.value()) {
        const Program program = program_of(plan);
        std::vector<std::string>& known = of_header[program.header];
        if (std::find(known.begin(), known.end(), program.expression) == known.end())
          known.push_back(program.expression);
      }
    }
  }
  EXPECT_EQ(of_header.size(), 4u);
  for (const auto& [header, expressions] : of_header) {
    std::vector<std::string> some;
    for (size_t i = 0; i < expressions.size(); ++i)
      if (kit::due(i, 3)) some.push_back(expressions[i]);
    if (!some.empty()) expect_in_registers(header, some);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, QuantizePrograms, testing::Values(64, 96, 128, 192, 256),
                         [](const auto& dim) { return "d" + std::to_string(dim.param); });

TEST(ScoreOffsetPrograms, CompileWithoutSpills) {
  std::vector<std::string> expressions;
  for (const bool is_i8 : {false, true})
    for (const int lanes : {1, 4, 16})
      expressions.push_back(score_offset_expression({is_i8, lanes}));
  expect_in_registers("device/sm90/fwd/score_offset.cuh", expressions);
}

}  // namespace
}  // namespace fa3::sm90
