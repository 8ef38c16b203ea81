// SPDX-License-Identifier: BSD-3-Clause
// fwd_kernels_test.cpp — the names of forward kernels: all of the table, those of plans, and words
// without a meaning.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/kernels.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;

std::vector<FwdKernel> kernels(const std::string& name) {
  const Result<std::vector<FwdKernel>> found = fwd_kernels(name);
  EXPECT_TRUE(found.ok()) << found.status().message;
  return found.ok() ? found.value() : std::vector<FwdKernel>{};
}

bool contains(const std::vector<FwdKernel>& all, const FwdConfig& config) {
  return std::any_of(all.begin(), all.end(),
                     [&](const FwdKernel& k) { return k.config == config; });
}

TEST(FwdKernels, All_AreRunnableAndNamedOnce) {
  std::vector<FwdKernel> all = kernels("fwd");
  for (const char* const operands : {"e4m3", "i8_e4m3", "i8_16_bits"})
    for (const FwdKernel& kernel : kernels(fmt::format("fwd/{}", operands))) all.push_back(kernel);
  std::set<std::string> names, expressions;
  for (const FwdKernel& kernel : all) {
    EXPECT_EQ(why_illegal(kernel.config), nullptr) << kernel.name;
    EXPECT_EQ(kernel.config.scores.kind, ScoreKind::kPlain) << kernel.name;
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_TRUE(expressions.insert(fwd_expression(kernel.config)).second) << kernel.name;
    EXPECT_TRUE(contains(kernels(kernel.name), kernel.config)) << kernel.name;
  }
  for (const FwdRow& row : kFwdRows) {
    const MaskKind mask = takes(row, MaskKind::kWindow)   ? MaskKind::kWindow
                          : takes(row, MaskKind::kCausal) ? MaskKind::kCausal
                                                          : MaskKind::kFull;
    for (const Operands operands : kOperands) {
      for (const MmaType dtype : {MmaType::kBf16, MmaType::kF16}) {
        for (const bool ragged : {false, true}) {
          const FwdVariant variant{dtype, mask, ScoreKind::kPlain, ragged, {}, operands};
          // A row in front of it takes its problems.
          const bool never =
              operands == Operands::kI8E4m3 && row.name == std::string("d64 8bit full");
          EXPECT_TRUE(!row.takes(operands) || never || contains(all, config_of(row, variant)))
              << row.name;
        }
      }
    }
  }
}

TEST(FwdKernels, NamesOfColumns_MeanTheirKernels) {
  for (const int64_t cols : {32, 64, 128}) {
    for (const int64_t rows : {0, 1}) {
      Problem p = problem(256, 256, 700, 700);
      for (const TensorId id : {kQ, kK, kV}) {
        p.layout[id].dtype = FA3_F8_E4M3;
        p.scale_block[id] = {rows, cols};
      }
      const Result<FwdPlan> plan = make_fwd_plan(p, device());
      ASSERT_TRUE(plan.ok()) << plan.status().message;
      const std::string name = name_of(plan.value());
      EXPECT_THAT(name, testing::EndsWith(fmt::format("/columns{}", cols)));
      EXPECT_TRUE(contains(kernels(name), plan.value().config)) << name;
    }
  }
}

// A plan's kernel is among those that its name means, and among those of the name with some of its
// words left out.
TEST(FwdKernels, NamesOfPlans_MeanTheirKernels) {
  const std::pair<int64_t, int64_t> dims[] = {{8, 8},     {40, 72},   {64, 64},   {80, 80},
                                              {128, 128}, {192, 128}, {192, 192}, {16, 256},
                                              {136, 200}, {256, 256}};
  for (const auto& [d_qk, d_v] : dims) {
    for (const int64_t queries : {1, 64, 65, 512, 513, 2048, 2049}) {
      for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
        for (const double softcap : {0., 15.}) {
          Problem p = problem(d_qk, d_v, queries, 700);
          p.mask = mask;
          p.left = 100;
          p.softcap = softcap;
          p.kv.seqused = queries % 2 == 0;
          const Result<FwdPlan> plan = make_fwd_plan(p, device());
          ASSERT_TRUE(plan.ok()) << plan.status().message;
          const std::string name = name_of(plan.value());
          EXPECT_TRUE(contains(kernels(name), plan.value().config)) << name;
          EXPECT_EQ(name.find("/softcap") != std::string::npos, softcap != 0) << name;
          const std::string start = name.substr(0, name.find('/', 4));
          const char* const score = softcap == 0 ? "/plain" : "/softcap";
          EXPECT_TRUE(contains(kernels(start + score), plan.value().config)) << name;
        }
      }
    }
  }
}

TEST(FwdKernels, Words_Choose) {
  EXPECT_EQ(kernels("fwd/d128").size(), 48u);
  EXPECT_EQ(kernels("fwd/bf16/d128/causal").size(),
            10u);  // q64, q1024, q4096, more, few tiles; ragged or not
  EXPECT_EQ(kernels("fwd/bf16/d128/causal/few_tiles").size(), 2u);
  EXPECT_EQ(kernels("fwd/bf16/d128/causal/alibi").size(), 4u);  // q64 and more
  EXPECT_EQ(kernels("fwd/d128/q64").size(), 12u);
  EXPECT_EQ(kernels("fwd/d192").size(), 24u);
  EXPECT_EQ(kernels("fwd/d192-128").size(), 20u);
  EXPECT_EQ(kernels("fwd/d96").size(), 32u);
  for (const FwdKernel& kernel : kernels("fwd/d80/f16/window/ragged")) {
    EXPECT_THAT(kernel.name, testing::StartsWith("fwd/d80/f16/window/ragged"));
    EXPECT_EQ(kernel.config.tile.head_dim_qk, 80);
  }
  for (const FwdKernel& kernel : kernels("fwd/scaled"))
    EXPECT_EQ(kernel.config.scores.kind, ScoreKind::kScaled);
}

TEST(FwdKernels, WordsThatSayNothing_AreRefused) {
  for (const char* name :
       {"", "bwd", "fwd/d", "fwd/d100", "fwd/d272", "fwd/d64-", "fwd/d-64", "fwd/d64-64-64",
        "fwd/bf16/f16", "fwd//d64", "fwd/q0", "fwd/q64/q512", "fwd/q63", "fwd/fp8", "fwd/d 64"}) {
    const Result<std::vector<FwdKernel>> found = fwd_kernels(name);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.status().code, FA3_INVALID_ARGUMENT) << name;
    EXPECT_THAT(found.status().message, HasSubstr(std::string("'") + name + "'"));
    EXPECT_THAT(found.status().message, HasSubstr("need fwd"));
  }
}

// Without a compiler: the kernel of the table, for the same grid and order.
TEST(FwdKernels, Widened_IsTheTables) {
  for (const int64_t d : {8, 72, 80, 144, 200}) {
    Problem p = problem(d, d);
    const FwdPlan plan = make_fwd_plan(p, device()).value();
    const std::optional<FwdPlan> wide = wider(plan);
    ASSERT_TRUE(wide.has_value());
    EXPECT_TRUE(contains(kernels("fwd"), wide->config)) << d;
    const FwdPlan again = with_config(*wide, wide->config, p, device().multiprocessors);
    EXPECT_EQ(again.grid, plan.grid);
    EXPECT_EQ(again.tiles, plan.tiles);
    EXPECT_EQ(again.counter, plan.counter);
    EXPECT_EQ(again.order.q_tiles, plan.order.q_tiles);
    EXPECT_FALSE(wider(*wide).has_value());
  }
  EXPECT_FALSE(wider(make_fwd_plan(problem(128, 128), device()).value()).has_value());
}

// O of the parts so far, where the kernel of the table has more columns.
TEST(FwdKernels, Widened_HasRoomForParts) {
  Problem p = problem(136, 136);
  p.kv.rows = p.kv.max_seqlen = 5000;
  EXPECT_EQ(make_fwd_plan(p, device()).value().part_bytes, 0);
  p.batch_invariant = 1;
  const FwdPlan plan = make_fwd_plan(p, device()).value();
  const std::optional<FwdPlan> wide = wider(plan);
  ASSERT_TRUE(wide.has_value());
  EXPECT_EQ(wide->config.tile.head_dim_v, 192);
  EXPECT_EQ(plan.part_bytes, int64_t{plan.grid} * plan.config.tile.q() * 192 * 4);
  p.kv.rows = p.kv.max_seqlen = 2048;  // one part
  EXPECT_EQ(make_fwd_plan(p, device()).value().part_bytes, 0);
}

}  // namespace
}  // namespace fa3::sm90
