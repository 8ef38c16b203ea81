// SPDX-License-Identifier: BSD-3-Clause
// decode_clusters_test.cpp — units that a cluster shares and merges in shared memory.
#include "sim/fwd/decode_kit.h"

namespace fa3::sim {
namespace {

constexpr DecodeConfig kDense = with_clusters(small_decode(false));
constexpr DecodeConfig kRagged = with_clusters(small_decode(true));
constexpr DecodeConfig kAlibi = [] {
  DecodeConfig c = kRagged;
  c.alibi = c.o_f32 = true, c.score = ScoreKind::kScaled;
  return c;
}();
constexpr DecodeConfig kRuns = with_clusters(two_consumers(small_decode(KvSource::kRuns)));
constexpr DecodeConfig kRows = with_clusters(small_decode(KvSource::kRows));

const bool added = (add_decode<kDense>(), add_decode<kRagged>(), add_decode<kAlibi>(),
                    add_decode<kRuns>(), add_decode<kRows>(), true);

verify::Config one_sequence(int64_t keys) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.heads_kv = 2, c.heads_q = 10;
  c.seqlen_q = 3, c.seqlen_kv = keys;
  c.alignment = 16;
  return c;
}

constexpr int kTen = 10;  // CTAs of a cluster, more than whose parts are read at once

void expect_right(const verify::Config& c, const DecodeConfig& config, int cluster) {
  TestRuntime runtime;
  DecodeRun run(runtime, c, config, 64, cluster);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
}

TEST(SimDecodeClusters, SequencesAlike_AreRight) {
  verify::Config c = one_sequence(329);
  c.batch = 3;
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    c.mask = mask;
    expect_right(c, kDense, 2);
  }
  for (const int cluster : {1, 3, 16}) expect_right(c, kDense, cluster);
  c.seqlen_kv = 5;  // a CTA has no tile
  expect_right(c, kDense, 2);
}

TEST(SimDecodeClusters, AnyLengthOfOneSequence_IsRight) {
  for (const int64_t used : {0, 1, 63, 64, 65, 640, 700, 1500}) {
    verify::Config c = one_sequence(1500);
    c.seqused_kv = {used};
    expect_right(c, kRagged, kTen);
    c.mask = FA3_MASK_WINDOW, c.left = 200, c.right = 1;
    expect_right(c, kRagged, kTen);
    c.left = 0, c.right = 0;
    c.mask = FA3_MASK_CAUSAL, c.magnitude = 40;
    expect_right(c, kRagged, kTen);
    c.seqused_q = {2};
    expect_right(c, kRagged, kTen);
  }
}

TEST(SimDecodeClusters, RowsOfNoSequence_AreZero) {
  verify::Config c = one_sequence(0);
  c.varlen_kv = {300};
  for (const int64_t queries : {0, 1, 3}) {
    for (const int64_t spare : {0, 1, 9}) {
      if (queries + spare == 0) continue;
      c.varlen_q = {queries}, c.spare_q = spare;
      expect_right(c, kRagged, kTen);
    }
  }
}

TEST(SimDecodeClusters, AlibiFp32AndFewerColumns_AreRight) {
  verify::Config c = one_sequence(700);
  c.seqused_kv = {650};
  c.head_dim_qk = c.head_dim_v = 40;
  expect_right(c, kRagged, kTen);
  c.alibi = true, c.mask = FA3_MASK_CAUSAL, c.out_dtype = FA3_F32;
  expect_right(c, kAlibi, 4);
}

TEST(SimDecodeClusters, Sinks_AreRight) {
  for (const int64_t used : {0, 1, 640}) {
    verify::Config c = one_sequence(700);
    c.seqused_kv = {used}, c.seqused_q = {2};
    c.with = {"sinks"};
    expect_right(c, kRagged, kTen);
  }
}

TEST(SimDecodeClusters, Pages_AreRight) {
  for (const int64_t used : {0, 1, 300, 333}) {
    verify::Config c = one_sequence(333);
    c.seqused_kv = {used};
    c.page_size = 16;
    expect_right(c, kRuns, 4);
    c.page_size = 3;
    expect_right(c, kRows, 2);
  }
}

// However the simulator orders CTAs and warps.
TEST(SimDecodeClusters, SameBitsUnderEverySchedule) {
  std::vector<unsigned char> first;
  for (const u64 seed : {0, 1, 2, 3, 4}) {
    TestRuntime runtime;
    runtime.device.options.seed = seed;
    DecodeRun run(runtime, one_sequence(700), kRagged, 64, kTen);
    run.run();
    if (first.empty()) first = run.bits();
    EXPECT_EQ(run.bits(), first) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fa3::sim
