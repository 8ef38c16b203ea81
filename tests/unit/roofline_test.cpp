// SPDX-License-Identifier: BSD-3-Clause
// roofline_test.cpp — costs of a KV tile counted by hand, and the grid's time as tiles make it up.
#include "plan/sm90/roofline.h"

#include <gtest/gtest.h>

#include "plan/sm90/fwd/configs.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

FwdPlan plan_of(const Problem& p) {
  const Result<FwdPlan> plan = make_fwd_plan(p, h200());
  EXPECT_TRUE(plan.ok()) << plan.status().message;
  return plan.ok() ? plan.value() : FwdPlan{};
}

// 128 queries, 128 keys, head dim 128.
TEST(Roofline, TileOf128_AsCountedByHand) {
  const TileCost cost = tile_cost(plan_of(problem(128, 128, 4096, 4096)).config, false);
  EXPECT_EQ(cost.mma, 2 * 2 * 128. * 128 * 128 / 4096);
  EXPECT_EQ(cost.exponentials, 128. * 128 / 16);
  // Two consumers: QKᵀ 8 wgmmas of A and B, PV 8 of B, 2 KiB and 4 KiB. Then K and V, 32 KiB each.
  EXPECT_EQ(cost.shared_memory, (2 * (8 * (2048 + 4096) + 8 * 4096) + 2 * 32768.) / 128);
  EXPECT_STREQ(cost.limiter(), "mma");
  EXPECT_EQ(cost.most(), cost.mma);
  EXPECT_EQ(expected_clocks(FwdConfig{}, cost), cost.mma + cost.issue);
}

TEST(Roofline, UnitThatLimits_FollowsTheProblem) {
  Problem p = problem(64, 64, 4096, 4096);
  TileCost cost = tile_cost(plan_of(p).config, false);
  EXPECT_EQ(cost.mma, cost.exponentials);  // head dim 64 is where both take as long
  p.softcap = 20;                          // a tanh for every score
  cost = tile_cost(plan_of(p).config, false);
  EXPECT_EQ(cost.exponentials, 2 * cost.mma);
  EXPECT_STREQ(cost.limiter(), "exponentials");
  EXPECT_STREQ(tile_cost(plan_of(problem(256, 256, 4096, 4096)).config, false).limiter(), "mma");
}

TEST(Roofline, MasksAndScores_TakeInstructions) {
  FwdConfig c;
  const double plain = step_instructions(c, false);
  EXPECT_EQ(step_instructions(c, true), plain + 2 * 64);
  c.mask.kind = MaskKind::kWindow;
  EXPECT_EQ(step_instructions(c, true), plain + 3 * 64);
  c.scores.kind = ScoreKind::kScaled;
  EXPECT_EQ(step_instructions(c, false), plain + 64);
  EXPECT_EQ(tile_cost(c, true).mma, tile_cost(c, false).mma);
}

TEST(Roofline, EveryRow_ExpectsMoreThanTheLeast) {
  for (const FwdRow& row : kFwdRows) {
    const TileCost cost = tile_cost(row.config, false);
    EXPECT_GT(cost.most(), 0) << row.name;
    EXPECT_GT(expected_clocks(row.config, cost), cost.most()) << row.name;
    EXPECT_GE(tile_cost(row.config, true).issue, cost.issue) << row.name;
  }
}

// 132 CTAs: one more Q tile than that takes twice as long.
TEST(Roofline, LastWave_IsWhole) {
  Problem p = problem(128, 128, 128, 4096);
  p.batch = p.heads_kv = 1;
  p.heads_q = 132;
  const Estimate full = estimate(plan_of(p), p);
  EXPECT_DOUBLE_EQ(full.busy, 1);
  p.heads_q = 133;
  const Estimate more = estimate(plan_of(p), p);
  EXPECT_DOUBLE_EQ(more.expected_s, 2 * full.expected_s);
  EXPECT_DOUBLE_EQ(more.busy, 133 / 264.);
}

TEST(Roofline, Causal_SkipsWhatItDoesNotVisit) {
  for (const int64_t dim : {64, 128, 256}) {
    Problem p = problem(dim, dim, 16384, 16384);
    const Estimate full = estimate(plan_of(p), p);
    p.mask = FA3_MASK_CAUSAL;
    const Estimate causal = estimate(plan_of(p), p);
    const double share = causal.expected_s * causal.busy / (full.expected_s * full.busy);
    EXPECT_GT(share, 0.49) << dim;  // masks have rows of their own, with fewer instructions a step
    EXPECT_LT(share, 0.55) << dim;
    EXPECT_GE(causal.busy, full.busy) << dim;  // short tiles last
    EXPECT_LE(causal.least_s, causal.expected_s) << dim;
  }
}

// One query over many keys: K and V are read once, and nothing else counts.
TEST(Roofline, Decode_IsBoundByMemory) {
  Problem p = problem(128, 128, 1, 65536);
  p.batch = 64;
  p.heads_kv = p.heads_q;
  const Estimate e = estimate(plan_of(p), p);
  EXPECT_EQ(e.expected_s, e.memory_s);
  const double kv_bytes = 64. * 65536 * 4 * 2 * 128 * 2;
  EXPECT_NEAR(e.memory_s, kv_bytes / kMemoryBytesPerS, 1e-3 * e.memory_s);
}

TEST(Roofline, HalfTheClock_TwiceTheTime) {
  const Problem p = problem(128, 128, 8192, 8192);
  const Estimate e = estimate(plan_of(p), p, 1.6), half = estimate(plan_of(p), p, 0.8);
  EXPECT_DOUBLE_EQ(half.expected_s, 2 * e.expected_s);
  EXPECT_DOUBLE_EQ(half.least_s, 2 * e.least_s);
}

// Too many tiles to assign one by one: their sum over the grid is as good.
TEST(Roofline, VeryManyTiles_AreSummed) {
  Problem p = problem(128, 128, 1 << 20, 128);
  p.heads_q = p.heads_kv = 64;
  p.batch = 1;
  const Estimate one = estimate(plan_of(p), p);
  p.batch = 4;
  const Estimate four = estimate(plan_of(p), p);
  EXPECT_NEAR(four.expected_s, 4 * one.expected_s, 1e-3 * four.expected_s);
}

TEST(Roofline, NoKeys_StillAnEstimate) {
  const Problem p = problem(128, 128, 300, 0);
  const Estimate e = estimate(plan_of(p), p);
  EXPECT_GT(e.expected_s, 0);
  EXPECT_LT(e.expected_s, 1e-4);
}

}  // namespace
}  // namespace fa3::sm90
