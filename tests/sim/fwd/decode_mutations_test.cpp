// SPDX-License-Identifier: BSD-3-Clause
// decode_mutations_test.cpp — every wait, arrival, fence and barrier of the decode kernels is left
// out in turn: the simulator has to report that, or the result has to differ.
#include "sim/fwd/decode_kit.h"
#include "sim/mutations.h"

namespace fa3::sim {
namespace {

constexpr DecodeConfig kTwo = two_consumers(small_decode(false));
constexpr DecodeConfig kTwoOfRuns = two_consumers(small_decode(KvSource::kRuns));
constexpr DecodeConfig kTwoOfRows = two_consumers(small_decode(KvSource::kRows));
constexpr DecodeConfig kClusters = with_clusters(small_decode(false));
constexpr DecodeConfig kWide = wide(small_decode(false), 128);
constexpr DecodeConfig kWideOfRuns = wide(small_decode(KvSource::kRuns), 128);
const bool added = (add_decode<small_decode(false)>(), add_decode<small_decode(true)>(),
                    add_decode<kTwo>(), add_decode<kTwoOfRuns>(), add_decode<kTwoOfRows>(),
                    add_decode<kClusters>(), add_decode<kWide>(), add_decode<kWideOfRuns>(), true);

// Units that one CTA has, and such as two and more share.
verify::Config dense() {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = 3;
  c.heads_q = 8, c.heads_kv = 2;
  c.alignment = 16;
  c.magnitude = 20;  // maxima grow, so that O is rescaled
  c.seqlen_q = 2;
  c.seqlen_kv = 5 * 64 + 9;
  return c;
}

const std::vector<Spared> kSpared = {
    {nullptr, "converge", "the simulator does not ask whether lanes are converged"},
    {"many_parts", "one_tile", "a CTA works on one tile"},
    {"rows", "wait_kv", "who waits for rows fences for what others have written, too"},
    {"rows", "no_tma", "nothing but threads arrives"},
};

// A warp that loads runs, and one that copies rows, for each of K and V.
void expect_every_line_missed_from_pages(const char* name, int64_t page_size,
                                         const DecodeConfig& config) {
  TestRuntime runtime;
  verify::Config c = dense();
  c.batch = 2;
  c.page_size = page_size;
  c.seqused_kv = {329, 64};
  DecodeRun run(runtime, c, config, 3);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  Mutations(runtime, run).expect_every_line_missed(name, kSpared, 15);
}

TEST(DecodeMutations, EveryLineIsMissed_Runs) {
  expect_every_line_missed_from_pages("runs", 16, kTwoOfRuns);
}
TEST(DecodeMutations, EveryLineIsMissed_Rows) {
  expect_every_line_missed_from_pages("rows", 1, kTwoOfRows);
}

TEST(DecodeMutations, EveryLineIsMissed_WideOfRuns) {
  expect_every_line_missed_from_pages("runs", 16, kWideOfRuns);
}

// Packed rows as the rows of GEMMs.
TEST(DecodeMutations, EveryLineIsMissed_Wide) {
  TestRuntime runtime;
  verify::Config c = dense();
  c.heads_q = 64, c.seqlen_q = 3;  // 96 rows
  DecodeRun run(runtime, c, kWide, 4);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  Mutations(runtime, run).expect_every_line_missed("wide", kSpared, 15);
}

TEST(DecodeMutations, EveryLineIsMissed) {
  TestRuntime runtime;
  DecodeRun run(runtime, dense(), small_decode(false), 4);
  Mutations(runtime, run).expect_every_line_missed("decode", kSpared, 15);
}

// Parts in the shared memory of two CTAs.
TEST(DecodeMutations, EveryLineIsMissed_Clusters) {
  TestRuntime runtime;
  DecodeRun run(runtime, dense(), kClusters, 12, 2);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  Mutations(runtime, run).expect_every_line_missed("decode", kSpared, 15);
}

// Each has some of the rows, and both free a stage.
TEST(DecodeMutations, EveryLineIsMissed_TwoConsumers) {
  TestRuntime runtime;
  DecodeRun run(runtime, dense(), kTwo, 4);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  Mutations(runtime, run).expect_every_line_missed("decode", kSpared, 15);
}

// A unit of more parts than a warp has in flight, where the plan expects fewer: CTAs have a row
// after the other.
TEST(DecodeMutations, EveryLineIsMissed_ManyParts) {
  TestRuntime runtime;
  verify::Config c = dense();
  c.batch = 2;
  c.heads_q = 16, c.heads_kv = 1;
  c.seqlen_q = 1;
  c.seqlen_kv = 12 * 64;
  c.seqused_kv = {12 * 64, 64};
  DecodeRun run(runtime, c, small_decode(true), 13);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  Mutations(runtime, run).expect_every_line_missed("many_parts", kSpared, 15);
}

}  // namespace
}  // namespace fa3::sim
