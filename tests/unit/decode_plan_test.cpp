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
  const FwdPlan forward = make_fwd_plan(p, half).value();
  const DecodeConfig config = decode_config(forward, p, half).value();
  EXPECT_EQ(make_decode_plans(config, forward, p, half).decode.ctas, 66u);
}

// CTAs of a unit's cluster: 64 in all, of units that are alike whatever lengths are.
int cluster_of(Problem p, int64_t heads_kv, int sms = 132) {
  DeviceInfo gpu = device();
  gpu.multiprocessors = sms;
  p.heads_kv = heads_kv, p.heads_q = heads_kv * std::max<int64_t>(p.heads_q, 1);
  const FwdPlan forward = make_fwd_plan(p, gpu).value();
  const DecodeConfig config = decode_config(forward, p, gpu).value();
  const DecodePlans plans = make_decode_plans(config, forward, p, gpu);
  EXPECT_EQ(plans.combine.merges(), !config.clusters && p.num_splits != 1);
  const int cluster = static_cast<int>(plans.decode.cluster);
  if (config.clusters) {
    const LaunchShape shape = shape_of(plans.decode);
    EXPECT_EQ(shape.cluster, plans.decode.cluster);
    EXPECT_EQ(shape.grid[0], static_cast<u32>(p.batch * cluster));
    EXPECT_EQ(shape.grid[1], static_cast<u32>(heads_kv));
    EXPECT_TRUE(writes(plans.decode).empty());
  }
  return cluster;
}
Problem one_query(int64_t keys, int64_t heads = 4) {
  Problem p = problem(128, 128, 1, keys);
  p.batch = 1, p.heads_q = heads;  // of a group
  return p;
}

TEST(DecodePlan, FewUnitsThatAreAlikeHaveClusters) {
  for (const auto& [heads_kv, cluster] : {std::pair{1, 16},
                                          {2, 16},
                                          {4, 16},
                                          {5, 12},
                                          {7, 9},
                                          {8, 8},
                                          {10, 6},
                                          {16, 4},
                                          {22, 1},
                                          {32, 2},
                                          {33, 1}})
    EXPECT_EQ(cluster_of(one_query(2048), heads_kv), cluster) << heads_kv;
  Problem sequences = one_query(2048);
  sequences.batch = 2;
  EXPECT_EQ(cluster_of(sequences, 8), 4);
  sequences.kv.seqused = true;
  EXPECT_EQ(cluster_of(sequences, 8), 1);
  sequences.batch = 1;
  EXPECT_EQ(cluster_of(sequences, 8), 8);
  Problem parts = one_query(2048);
  for (const auto& [splits, cluster] : {std::pair{0, 8}, {1, 1}, {7, 1}, {8, 8}}) {
    parts.num_splits = splits;
    EXPECT_EQ(cluster_of(parts, 8), cluster) << splits;
  }
}

// Rows of no sequence would be units of its clusters, one after the other; the line spreads them.
TEST(DecodePlan, ClustersHaveFewRowsOfNoSequence) {
  Problem p = one_query(2048);
  p.q.varlen = true, p.q.max_seqlen = 1;
  for (const auto& [rows, cluster] : {std::pair{1, 8}, {3, 8}, {4096, 1}}) {
    p.q.rows = rows;
    EXPECT_EQ(cluster_of(p, 8), cluster) << rows;
  }
}

TEST(DecodePlan, NoHeadsArePlanned) {
  Problem p = one_query(2048);
  p.heads_q = p.heads_kv = 0;
  const FwdPlan forward = make_fwd_plan(p, device()).value();
  const std::optional<DecodeConfig> config = decode_config(forward, p, device());
  EXPECT_FALSE(config && config->clusters);
}

// CTAs read as fast as all SMs, if they are spread and do not compute too much.
TEST(DecodePlan, ClustersHaveSoManyKeysAtMost) {
  EXPECT_EQ(cluster_of(one_query(1 << 15), 8), 8);
  EXPECT_EQ(cluster_of(one_query((1 << 15) + 1), 8), 1);
  EXPECT_EQ(cluster_of(one_query(14 << 10), 4), 16);
  EXPECT_EQ(cluster_of(one_query(16 << 10), 4), 1);
  EXPECT_EQ(cluster_of(one_query(4096, 32), 8), 8);
  EXPECT_EQ(cluster_of(one_query(8192, 32), 8), 1);
}

// GPUs of which not all SMs are there may have no place for a large cluster, or for many.
TEST(DecodePlan, ClustersNeedAWholeGpu) {
  EXPECT_EQ(cluster_of(one_query(2048), 4, 99), 8);
  EXPECT_EQ(cluster_of(one_query(2048), 4, 63), 1);
}

TEST(DecodePlan, ManyRowsAreThoseOfGemms) {
  const DecodeConfig few = plans_of(32, 32, 8, 128, 8).decode.config;
  EXPECT_FALSE(few.wide);
  EXPECT_EQ(few.rows, 32);
  EXPECT_EQ(few.consumers, 1);
  for (const int64_t queries : {16, 32}) {
    const DecodeConfig wide = plans_of(32, 32, 8, 128, queries).decode.config;
    EXPECT_TRUE(wide.wide);
    EXPECT_EQ(wide.rows, 4 * queries);
    EXPECT_EQ(wide.consumer_rows(), 64);
    EXPECT_EQ(wide.tile_kv, 128);
  }
  // Where each CTA has a few tiles, those of fewer rows are done sooner.
  const DecodeConfig narrow = plans_of(1, 32, 8, 128, 16).decode.config;
  EXPECT_FALSE(narrow.wide);
  EXPECT_EQ(narrow.rows, 64);
  EXPECT_EQ(narrow.consumers, 2);
  EXPECT_FALSE(plans_of(1, 128, 1, 128, 1).decode.config.wide);
  EXPECT_TRUE(plans_of(16, 128, 1, 128, 1).decode.config.wide);
}

bool is_decoded(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t queries) {
  Problem p = problem(128, 128, queries, 8192);
  p.batch = batch, p.heads_q = heads_q, p.heads_kv = heads_kv;
  const Result<FwdPlan> forward = make_fwd_plan(p, device());
  return decode_config(forward.value(), p, device()).has_value();
}
// Tiles of several heads' rows are fuller, and keys that are shared evenly keep all SMs busy.
TEST(DecodePlan, ManyQueriesOfFewSequences) {
  EXPECT_TRUE(is_decoded(1, 64, 8, 128));    // 64 tiles of the forward
  EXPECT_TRUE(is_decoded(1, 32, 8, 256));    // as many
  EXPECT_TRUE(is_decoded(16, 64, 8, 64));    // half of each tile would be empty
  EXPECT_FALSE(is_decoded(4, 32, 8, 128));   // 128 tiles, a wave
  EXPECT_FALSE(is_decoded(16, 32, 8, 128));  // 512 tiles, four waves
  EXPECT_FALSE(is_decoded(8, 32, 8, 512));   // tiles of three consumers
  EXPECT_FALSE(is_decoded(1, 32, 8, 2048));  // a prefill
}

// Places of the line are counted in 31 bits, those that stand for units' ends included.
TEST(DecodePlan, AsManyPlacesAsAreCounted) {
  EXPECT_TRUE(is_decoded(2'060'000, 8, 8, 1));   // 130 places each
  EXPECT_FALSE(is_decoded(2'080'000, 8, 8, 1));  // of which 128 would fit
}

TEST(DecodePlan, SharedMemoryHoldsEveryConfiguration) {
  for (const DecodeHeadDims& dims : kDecodeHeadDims) {
    for (const DecodeTile& tile : kDecodeTiles) {
      for (int ctas = 1; ctas <= (two_fit({}, dims, tile.rows) ? 2 : 1); ++ctas) {
        const DecodeConfig c = with_tiles({.wide = tile.wide}, dims, tile.rows, ctas);
        EXPECT_LE(ctas * (c.smem_bytes() + 1024), 228 * 1024) << dims.qk << " " << tile.rows;
        EXPECT_GE(c.stages, 2) << dims.qk << " " << tile.rows;
      }
    }
  }
}

// With one part of each unit there is nothing to merge, and nowhere to keep parts.
TEST(DecodePlan, OnePartOfEachUnitIsOneKernel) {
  Problem p = problem(128, 128, 1, 4096);
  p.batch = 2, p.heads_q = 32, p.heads_kv = 8;
  p.kv.seqused = true;  // else there are clusters
  for (const int32_t splits : {0, 1, 2}) {
    p.num_splits = splits;
    const FwdPlan forward = make_fwd_plan(p, device()).value();
    const DecodePlans plans =
        make_decode_plans(decode_config(forward, p, device()).value(), forward, p, device());
    EXPECT_EQ(plans.combine.merges(), splits != 1);
    EXPECT_EQ(writes(plans.decode).empty(), splits == 1);
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
