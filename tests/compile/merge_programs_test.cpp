// SPDX-License-Identifier: BSD-3-Clause
// merge_programs_test.cpp — the kernels of fa3_combine, and those that append, stay in registers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/sm90/known.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;
using testing::Not;

void expect_in_registers(const char* header, const std::vector<NamedProgram>& programs,
                         size_t count) {
  std::vector<std::string> expressions;
  for (const NamedProgram& p : programs) expressions.push_back(p.program.expression);
  ASSERT_EQ(expressions.size(), count);
  const kit::Translation compiled =
      kit::translate(std::string("#include \"") + header + "\"\n", expressions);
  EXPECT_THAT(compiled.log, Not(HasSubstr("(C75")));
  EXPECT_THAT(compiled.log, Not(HasSubstr("warning")));
  for (size_t i = 0; i < expressions.size(); ++i) {
    const kit::Code code(compiled.cubin, compiled.symbols[i]);
    EXPECT_EQ(code.count(kit::kLoadLocal) + code.count(kit::kStoreLocal), 0u) << expressions[i];
  }
}

TEST(MergePrograms, StayInRegisters) {
  expect_in_registers("device/sm90/merge/merge.cuh", known_merges(), 9);
}

TEST(AppendPrograms, StayInRegisters) {
  expect_in_registers("device/sm90/append/append.cuh", known_appends(), 6);
}

}  // namespace
}  // namespace fa3::sm90
