// SPDX-License-Identifier: BSD-3-Clause
// merge_programs_test.cpp — the kernels of fa3_combine stay in registers.
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

TEST(MergePrograms, StayInRegisters) {
  std::vector<std::string> expressions;
  for (const NamedProgram& merge : known_merges()) expressions.push_back(merge.program.expression);
  ASSERT_EQ(expressions.size(), 9u);
  const kit::Translation compiled =
      kit::translate("#include \"device/sm90/merge/merge.cuh\"\n", expressions);
  EXPECT_THAT(compiled.log, Not(HasSubstr("(C75")));
  EXPECT_THAT(compiled.log, Not(HasSubstr("warning")));
  for (size_t i = 0; i < expressions.size(); ++i) {
    const kit::Code code(compiled.cubin, compiled.symbols[i]);
    EXPECT_EQ(code.count(kit::kLoadLocal) + code.count(kit::kStoreLocal), 0u) << expressions[i];
  }
}

}  // namespace
}  // namespace fa3::sm90
