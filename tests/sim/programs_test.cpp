// SPDX-License-Identifier: BSD-3-Clause
// programs_test.cpp — libfa3_sim.so has the programs of the conformance cases, and no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backend/sim/runtime.h"
#include "conformance/cases/cases.h"
#include "runtime/sim_api.h"

namespace fa3::sim {
namespace {

std::string without_blanks(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

TEST(SimPrograms, AreThoseOfTheCases) {
  const auto api = load_simulator();
  ASSERT_TRUE(api.ok()) << api.status().message;
  std::set<std::string> compiled_in, in_cases;
  for (size_t i = 0; const char* expression = api.value()->program(i); ++i) {
    // Kernels of attention have no cases here; tests of their own run them.
    if (std::string(expression).find("fa3::sm90::") == 0) continue;
    compiled_in.insert(expression);
  }
  for (const Program& program : selftest::programs_of(selftest::all_cases())) {
    in_cases.insert(without_blanks(program.expression));
    bool has = false;
    fa3_status code = FA3_OK;
    EXPECT_EQ(api.value()->has_program(program.expression.c_str(), &has, &code), nullptr);
    EXPECT_TRUE(has) << program.expression;
  }
  EXPECT_THAT(compiled_in, ::testing::ContainerEq(in_cases));
}

}  // namespace
}  // namespace fa3::sim
