// SPDX-License-Identifier: BSD-3-Clause
// decode_programs_test.cpp — the decode kernels stay in registers, and ptxas does not serialise
// their GEMMs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/sm90/decode/configs.h"
#include "plan/sm90/decode/plan.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"
#include "tests/kit/thorough.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;
using testing::Not;

void expect_in_registers(const char* header, const std::vector<std::string>& all) {
  std::vector<std::string> expressions;
  for (size_t i = 0; i < all.size(); ++i)
    if (kit::due(i, 3)) expressions.push_back(all[i]);
  const kit::Translation compiled =
      kit::translate(std::string("#include \"") + header + "\"\n", expressions);
  EXPECT_THAT(compiled.log, Not(HasSubstr("(C75")));
  EXPECT_THAT(compiled.log, Not(HasSubstr("warning")));
  for (size_t i = 0; i < expressions.size(); ++i) {
    const kit::Code code(compiled.cubin, compiled.symbols[i]);
    EXPECT_EQ(code.count(kit::kLoadLocal) + code.count(kit::kStoreLocal), 0u) << expressions[i];
  }
}

std::vector<DecodeConfig> widest() {
  std::vector<DecodeConfig> all;
  DecodeConfig c;
  c.score = ScoreKind::kScaled, c.ragged = true;
  for (const DecodeHeadDims& dims : kDecodeHeadDims)
    for (const int rows : {8, kMostDecodeRows}) all.push_back(with_tiles(c, dims, rows));
  all.push_back(with_alibi(decode_of(256, 64, ScoreKind::kSoftcap)));
  return all;
}

TEST(DecodePrograms, StayInRegisters) {
  std::vector<std::string> decode, combine;
  for (const DecodeConfig& config : widest()) {
    decode.push_back(decode_expression(config));
    combine.push_back(combine_expression(combine_of(config)));
  }
  expect_in_registers("device/sm90/decode/decode.cuh", decode);
  expect_in_registers("device/sm90/decode/combine.cuh", combine);
}

}  // namespace
}  // namespace fa3::sm90
