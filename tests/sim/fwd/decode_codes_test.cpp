// SPDX-License-Identifier: BSD-3-Clause
// decode_codes_test.cpp — keys and values of E4M3 by consumers that take turns at KV tiles, that
// share the rows, and in clusters; and lines without which these go wrong.
#include "sim/fwd/decode_kit.h"
#include "sim/mutations.h"

namespace fa3::sim {
namespace {

constexpr DecodeConfig kTurns = of_codes(small_decode(false), 3, true);
constexpr DecodeConfig kOne = of_codes(small_decode(true), 1, false);
constexpr DecodeConfig kClusters = with_clusters(of_codes(small_decode(true), 2, true));
constexpr DecodeConfig kTurnsOfRuns = of_codes(small_decode(KvSource::kRuns), 2, true);
constexpr DecodeConfig kManyRows = [] {
  DecodeConfig c = of_codes(small_decode(true), 2, false);
  c.rows = kMostNarrowRows, c.one_tile = false;
  return c;
}();
constexpr DecodeConfig kTree = [] {
  DecodeConfig c = kOne;
  c.tree = true;
  return c;
}();
const bool added = (add_decode<kTurns>(), add_decode<kOne>(), add_decode<kClusters>(),
                    add_decode<kTurnsOfRuns>(), add_decode<kManyRows>(), add_decode<kTree>(), true);

verify::Config problem(int64_t queries, int64_t keys) {
  verify::Config c;
  c.dtype = FA3_BF16, c.kv_dtype = FA3_F8_E4M3;
  c.batch = 3;
  c.heads_q = 8, c.heads_kv = 2;
  c.seqlen_q = queries, c.seqlen_kv = keys;
  c.alignment = 16;
  c.magnitude = 20;  // maxima grow, so that O is rescaled
  return c;
}

void expect_right(const verify::Config& c, const DecodeConfig& config, int sms, int cluster = 1) {
  TestRuntime runtime;
  DecodeRun run(runtime, c, config, sms, cluster);
  run.run();
  for (const verify::OutputResult& result : run.judge())
    EXPECT_TRUE(result.ok) << result.name << ": " << verify::replay_command(c);
}

// Fewer KV tiles than consumers, as many, and more; parts of several CTAs.
TEST(SimDecodeCodes, Turns_AreRight) {
  for (const int64_t keys : {1, 64, 65, 190, 329, 700}) {
    verify::Config c = problem(2, keys);
    expect_right(c, kTurns, 4);
    c.mask = FA3_MASK_CAUSAL;
    expect_right(c, kTurns, 16);
    c.with = {"sinks"};
    expect_right(c, kTurns, 1);
  }
  verify::Config c = problem(4, 700);
  c.page_size = 16, c.seqused_kv = {700, 0, 130};
  c.mask = FA3_MASK_WINDOW, c.left = 150, c.right = 0;
  expect_right(c, kTurnsOfRuns, 5);
}

TEST(SimDecodeCodes, ClustersAndOthers_AreRight) {
  for (const int64_t used : {0, 1, 64, 640, 1500}) {
    verify::Config c = problem(3, 1500);
    c.batch = 1, c.seqused_kv = {used};
    expect_right(c, kClusters, 64, 10);
    c.mask = FA3_MASK_CAUSAL, c.alibi = false;
    expect_right(c, kClusters, 64, 3);
    expect_right(c, kOne, 7);
  }
  verify::Config c = problem(16, 500);
  c.seqused_kv = {500, 33, 0};
  c.mask = FA3_MASK_CAUSAL;
  expect_right(c, kManyRows, 6);
  c.seqlen_q = 40;
  expect_right(c, kManyRows, 6);
  c.seqlen_q = 4, c.mask = FA3_MASK_FULL, c.with = {"tree_mask", "max_logit"};
  expect_right(c, kTree, 4);
}

const std::vector<Spared> kSpared = {
    {nullptr, "converge", "the simulator does not ask whether lanes are converged"},
};

TEST(SimDecodeCodes, EveryLineIsMissed_Turns) {
  TestRuntime runtime;
  DecodeRun run(runtime, problem(2, 9 * 64 + 9), kTurns, 4);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  Mutations(runtime, run).expect_every_line_missed("codes", kSpared, 14);
}

TEST(SimDecodeCodes, EveryLineIsMissed_ManyRows) {
  TestRuntime runtime;
  verify::Config c = problem(16, 5 * 64 + 9);
  c.seqused_kv = {329, 64, 200};
  DecodeRun run(runtime, c, kManyRows, 4);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  Mutations(runtime, run).expect_every_line_missed("codes", kSpared, 15);
}

}  // namespace
}  // namespace fa3::sim
