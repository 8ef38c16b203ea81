// SPDX-License-Identifier: BSD-3-Clause
// decode_plan_test.cpp — tiles and CTAs of the decode kernel by what a call has.
#include <gtest/gtest.h>

#include "plan/sm90/decode/configs.h"
#include "plan/sm90/decode/plan.h"
#include "plan/sm90/fwd/plan.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

DecodePlans plans_of(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t d, int64_t queries) {
  Problem p = problem(d, d, queries, 4096);
  p.batch = batch, p.heads_q = heads_q, p.heads_kv = heads_kv;
  const Result<FwdPlan> forward = make_fwd_plan(p, device());
  EXPECT_TRUE(forward.ok());
  const std::optional<DecodeConfig> config = decode_config(forward.value(), p, device());
  EXPECT_TRUE(config.has_value());
  return make_decode_plans(*config, forward.value(), p, device());
}

TEST(DecodePlan, TwoCtasOnAnSmWhereUnitsAreForBoth) {
  const DecodePlan many = plans_of(32, 32, 8, 128, 1).decode;
  EXPECT_EQ(many.config.ctas_per_sm, 2);
  EXPECT_EQ(many.ctas, 2u * 132);
  EXPECT_GE(many.config.stages, 2);
  const DecodePlan few = plans_of(16, 32, 8, 128, 1).decode;  // 128 units
  EXPECT_EQ(few.config.ctas_per_sm, 1);
  EXPECT_EQ(few.ctas, 132u);
  EXPECT_GT(few.config.stages, many.config.stages);
  // Stages of head dim 256 are too large, and 64 rows have too many registers.
  EXPECT_EQ(plans_of(32, 32, 8, 256, 1).decode.config.ctas_per_sm, 1);
  EXPECT_EQ(plans_of(32, 32, 8, 128, 16).decode.config.ctas_per_sm, 1);
}

// Two CTAs of a smaller grid would first spread over all SMs, and none would be free.
TEST(DecodePlan, AMarginLeavesWholeSmsFree) {
  Problem p = problem(128, 128, 1, 4096);
  p.batch = 32, p.heads_q = 32, p.heads_kv = 8;
  p.sm_margin = 66;
  DeviceInfo half = device();
  half.multiprocessors = 66;
  const Result<FwdPlan> forward = make_fwd_plan(p, half);
  ASSERT_TRUE(forward.ok());
  EXPECT_EQ(decode_config(forward.value(), p, half)->ctas_per_sm, 1);
}

TEST(DecodePlan, SixtyFourRowsHaveTwoConsumers) {
  const DecodeConfig wide = plans_of(32, 32, 8, 128, 16).decode.config;
  EXPECT_EQ(wide.rows, 64);
  EXPECT_EQ(wide.consumers, 2);
  EXPECT_EQ(wide.consumer_rows(), 32);
  EXPECT_EQ(wide.tile_kv, 128);
  EXPECT_EQ(plans_of(32, 32, 8, 128, 8).decode.config.consumers, 1);
}

TEST(DecodePlan, SharedMemoryHoldsEveryConfiguration) {
  for (const DecodeHeadDims& dims : kDecodeHeadDims) {
    for (int rows = 8; rows <= kMostDecodeRows; rows *= 2) {
      for (int ctas = 1; ctas <= (two_fit(dims, rows) ? 2 : 1); ++ctas) {
        const DecodeConfig c = with_tiles({}, dims, rows, ctas);
        EXPECT_LE(ctas * (c.smem_bytes() + 1024), 228 * 1024) << dims.qk << " " << rows;
        EXPECT_GE(c.stages, 2) << dims.qk << " " << rows;
      }
    }
  }
}

// A CTA merges a unit where CTAs of the decode kernel are more.
TEST(DecodePlan, MergingHasACtaForEachUnitOrShare) {
  const LaunchShape units = shape_of(plans_of(2, 32, 8, 128, 1).combine);
  EXPECT_EQ(units.grid[0], 2u);
  EXPECT_EQ(units.grid[2], 8u);
  const LaunchShape shares = shape_of(plans_of(64, 32, 8, 128, 1).combine);
  EXPECT_EQ(shares.grid[0], 2u * 132);
  EXPECT_EQ(shares.grid[2], 1u);
  EXPECT_EQ(shape_of(plans_of(1, 128, 1, 128, 1).combine).grid[1], 64u);  // many parts: a CTA a row
}

}  // namespace
}  // namespace fa3::sm90
