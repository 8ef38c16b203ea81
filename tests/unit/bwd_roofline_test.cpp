// SPDX-License-Identifier: BSD-3-Clause
// bwd_roofline_test.cpp — costs of a step counted by hand, and the kernels' times made of them.
#include <gtest/gtest.h>

#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/bwd/roofline.h"
#include "plan/sm90/roofline.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

// 2 sequences, 16 heads over 16, both gradients.
Problem backward(int64_t d, int64_t q, int64_t kv) {
  Problem p = problem(d, d, q, kv);
  p.op = FA3_OP_BACKWARD;
  p.heads_q = p.heads_kv = 16;
  for (const TensorId id : {kQ, kO, kDout, kDq}) p.layout[id] = dense(FA3_BF16, q, 16, d);
  for (const TensorId id : {kK, kV, kDk, kDv}) p.layout[id] = dense(FA3_BF16, kv, 16, d);
  p.layout[kLse] = {FA3_F32, 16 * q, 1, q};
  return p;
}

BwdEstimate estimate_of(const Problem& p) {
  const Result<std::vector<BwdPlan>> plans = make_bwd_plans(p, h200());
  EXPECT_TRUE(plans.ok()) << plans.status().message;
  for (const BwdPlan& plan : plans.value())
    if (plan.pass == BwdPass::kMain) return bwd_estimate(plan, p);
  ADD_FAILURE() << "no main kernel";
  return {};
}

// 64 queries, 128 keys.
TEST(BwdRoofline, StepOf128_AsCountedByHand) {
  const BwdStepCost cost =
      bwd_step_cost({.head_dim_qk = 128, .head_dim_v = 128, .tile_q = 64, .consumer_wgs = 2});
  EXPECT_EQ(cost.mma, (5 * 128 + 2 * 16) * 2 * 64. * 128 / 4096);
  EXPECT_EQ(cost.exponentials, 64. * 128 / 16);
  EXPECT_EQ(cost.additions, 64. * 128 * 4 / 15.6);
  // Two consumers: S and dP 8 wgmmas each of 2 + 2 KiB, and one of B alone, 2 KiB, for LSE and
  // delta, dV and dK 4 of B alone, 4 KiB, dQ 8 of 2 + 2 KiB. Q, dO arrive, 16 KiB each, LSE and
  // delta, 1 KiB each; dS, 16 KiB, is stored; dQ, 32 KiB, is stored and read.
  const double kib = 2 * (2 * (8 * 4 + 2) + 2 * 4 * 4 + 8 * 4) + 2 * 16 + 2 * 1 + 16 + 2 * 32;
  EXPECT_EQ(cost.shared_memory, kib * 1024 / 128);
  EXPECT_STREQ(cost.limiter(), "shared_memory");
}

TEST(BwdRoofline, EveryRow_HasALimiter) {
  for (const BwdRow& row : kBwdRows) {
    const BwdStepCost cost = bwd_step_cost(row.config);
    EXPECT_GT(cost.mma, 0) << row.name;
    EXPECT_GE(cost.most(), cost.mma) << row.name;
    // 128 keys share a tile of dQ, at head dim 256 those of a cluster.
    EXPECT_LT(cost.additions, cost.mma) << row.name;
  }
}

TEST(BwdRoofline, OneKvTile_SetsNothingTo0) {
  const double one = estimate_of(backward(128, 4096, 128)).delta_s,
               two = estimate_of(backward(128, 4096, 129)).delta_s;
  EXPECT_NEAR(two - one, 2 * 16 * 4096. * 128 * 4 / kMemoryBytesPerS, 1e-9);
  Problem causal = backward(128, 4096, 128);  // of which most queries see no key
  causal.mask = FA3_MASK_CAUSAL;
  EXPECT_EQ(estimate_of(causal).delta_s, two);
}

TEST(BwdRoofline, Causal_HasHalfOfTheSteps) {
  for (const int64_t d : {64, 128, 256}) {
    Problem p = backward(d, 16384, 16384);
    const BwdEstimate full = estimate_of(p);
    p.mask = FA3_MASK_CAUSAL;
    const BwdEstimate causal = estimate_of(p);
    EXPECT_NEAR(causal.steps, 0.5 * full.steps, 0.02 * full.steps) << d;
    EXPECT_NEAR(causal.main_s, 0.5 * full.main_s, 0.03 * full.main_s) << d;
    EXPECT_EQ(causal.delta_s, full.delta_s) << d;
  }
}

TEST(BwdRoofline, Steps_AreTilesTimesHeads) {
  const Problem p = backward(128, 1024, 1024);
  const BwdEstimate e = estimate_of(p);
  EXPECT_EQ(e.steps, 2. * 16 * (1024 / 64) * (1024 / 128));
  // 256 CTAs on 132 SMs: two waves, of which the second is nearly empty.
  EXPECT_DOUBLE_EQ(e.busy, 256 / 264.);
}

// One step for each KV tile: what the kernels read and write decides.
TEST(BwdRoofline, ShortSequences_AreBoundByMemory) {
  Problem p = backward(128, 64, 128);
  p.batch = 66;
  const BwdEstimate e = estimate_of(p);
  EXPECT_TRUE(e.main_by_memory);
  const double sums = 66. * 16 * 64 * 128 * 4;
  EXPECT_GT(e.dq_s, sums / kMemoryBytesPerS);
  EXPECT_LT(e.dq_s, 2 * sums / kMemoryBytesPerS);
}

TEST(BwdRoofline, NoDq_NoSumsOfIt) {
  for (const int64_t d : {128, 256}) {
    Problem p = backward(d, 4096, 4096);
    const BwdEstimate all = estimate_of(p);
    p.layout[kDq] = {};
    const BwdEstimate without = estimate_of(p);
    EXPECT_GT(all.dq_s, 0) << d;
    EXPECT_EQ(without.dq_s, 0) << d;
    EXPECT_LT(without.main_s, all.main_s) << d;
    EXPECT_LT(without.delta_s, all.delta_s) << d;
  }
}

TEST(BwdRoofline, Deterministic_ReadsKeysFirst) {
  Problem p = backward(128, 4096, 4096);
  EXPECT_EQ(estimate_of(p).bound_s, 0);
  p.deterministic = true;
  EXPECT_GT(estimate_of(p).bound_s, 0);
}

TEST(BwdRoofline, NothingToDo_IsAnEstimate) {
  EXPECT_GE(estimate_of(backward(128, 300, 0)).least_s(), 0);
  EXPECT_LT(estimate_of(backward(128, 300, 0)).least_s(), 1e-4);
}

}  // namespace
}  // namespace fa3::sm90
