// SPDX-License-Identifier: BSD-3-Clause
// fwd_hooks_test.cpp — the forward's hook behind the softmax in machine code: a weight of P costs
// the loops nothing but its own instructions, and does not spill on the row that leaves the fewest
// registers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/plan.h"
#include "runtime/header_set.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"

namespace fa3::sm90 {
namespace {

// The kernel with functors of kit/fwd_functors.h.
std::string with(const char* functors, const FwdConfig& c) {
  std::string made = fwd_expression(c);
  const std::string kernel = "fa3::sm90::fwd<";
  made.replace(0, kernel.size(), "fa3::kit::fwd_with<");
  return fmt::format("{}, fa3::kit::{}>", made.substr(0, made.size() - 1), functors);
}

kit::Translation translate(const std::vector<std::string>& expressions) {
  std::ifstream file(FA3_SOURCE_DIR "/tests/kit/fwd_functors.h");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const DeviceHeader header{"tests/kit/fwd_functors.h", text.c_str()};
  const HeaderSet functors{{&header, 1}, ""};
  return kit::translate("#include \"tests/kit/fwd_functors.h\"\n", expressions, &functors);
}

// Instructions of the loop over unmasked KV tiles, the second of three.
size_t unmasked_length(const kit::Code& code) {
  const std::vector<kit::Loop> loops = code.inner_wgmma_loops();
  if (loops.size() != 3) throw std::runtime_error(fmt::format("{} loops", loops.size()));
  return loops[1].end - loops[1].begin;
}

FwdConfig windowed(const std::string& name) {
  for (const FwdRow& row : kFwdRows) {
    if (row.name != name) continue;
    FwdConfig c = row.config;
    c.mask.kind = MaskKind::kWindow;
    return c;
  }
  throw std::runtime_error("no row " + name);
}

class FwdHooks : public testing::TestWithParam<const char*> {};

TEST_P(FwdHooks, CostWhatTheyCompute) {
  const FwdConfig c = windowed(GetParam());
  const std::vector<std::string> expressions{fwd_expression(c), with("WithWeight", c)};
  const kit::Translation all = translate(expressions);
  ASSERT_EQ(all.symbols.size(), expressions.size());
  EXPECT_THAT(all.log, testing::Not(testing::HasSubstr("(C75")));
  EXPECT_THAT(all.log, testing::Not(testing::HasSubstr("warning")));
  const size_t before = unmasked_length({all.cubin, all.symbols[0]});
  const auto products = static_cast<size_t>(c.tile.kv / 2);  // of P, in each thread
  for (size_t i = 0; i < all.symbols.size(); ++i) {
    SCOPED_TRACE(expressions[i]);
    const kit::Code code(all.cubin, all.symbols[i]);
    EXPECT_EQ(code.count(kit::kLoadLocal) + code.count(kit::kStoreLocal), 0u) << "spills";
    const size_t weighs = i == 1 ? products : 0;
    EXPECT_GE(unmasked_length(code), before + weighs);
    EXPECT_LE(unmasked_length(code), before + weighs + 8);
  }
}

// The row that leaves a consumer the fewest registers.
INSTANTIATE_TEST_SUITE_P(Rows, FwdHooks, testing::Values("d256"), [](const auto& row) {
  std::string name = row.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

}  // namespace
}  // namespace fa3::sm90
