// SPDX-License-Identifier: BSD-3-Clause
// decode_test.cpp — few queries on Hopper in the simulator: packed groups, keys that CTAs share,
// and what they leave to merge.
#include <gmock/gmock.h>

#include <string>

#include "tests/kit/run.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

verify::Config few_rows(int64_t head_dim, int64_t seqlen_q, int64_t heads_q, int64_t heads_kv) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.batch = 2;
  c.heads_q = heads_q, c.heads_kv = heads_kv;
  c.seqlen_q = seqlen_q, c.seqlen_kv = 600;
  c.alignment = 16;
  return c;
}

// The kernels that the plan of a problem has.
std::string plan_text(verify::Config c) {
  const verify::Tensors tensors = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, tensors);
  size_t size = 0;
  EXPECT_EQ(fa3_explain(simulator(), FA3_OP_FORWARD, &args, nullptr, 0, &size), FA3_OK);
  std::string json(size, ' ');
  EXPECT_EQ(fa3_explain(simulator(), FA3_OP_FORWARD, &args, json.data(), size, &size), FA3_OK);
  return json;
}
void expect_decoded(const verify::Config& c) {
  const std::string plan = plan_text(c);
  EXPECT_THAT(plan, testing::HasSubstr("sm90::decode<"));
  const auto splits = c.numbers.find("num_splits");
  const bool merges = splits == c.numbers.end() || splits->second != 1;
  EXPECT_EQ(plan.find("sm90::combine<") != plan.npos, merges);
  kit::expect_right(c, simulator());
}
bool is_skipped(int64_t head_dim) { return kit::kSanitized && head_dim != kit::kSanitizedHeadDim; }

TEST(SimDecode, EveryHeadDimAndMask_IsRight) {
  for (const int64_t head_dim : {64, 40, 128, 96, 256}) {
    if (is_skipped(head_dim)) continue;
    verify::Config c = few_rows(head_dim, 1, 8, 1);
    expect_decoded(c);
    c = few_rows(head_dim, 3, 4, 1);
    c.mask = FA3_MASK_CAUSAL;
    expect_decoded(c);
    c.mask = FA3_MASK_WINDOW, c.left = 130, c.right = 1;
    expect_decoded(c);
  }
}

TEST(SimDecode, SoftcapAlibiAndFp32_AreRight) {
  verify::Config c = few_rows(64, 2, 8, 2);
  c.softcap = 20;
  expect_decoded(c);
  c.softcap = 0, c.alibi = true, c.mask = FA3_MASK_CAUSAL;
  expect_decoded(c);
  c.alibi = false, c.out_dtype = FA3_F32;
  expect_decoded(c);
  c.out_dtype = 0, c.magnitude = 40;  // maxima grow from tile to tile
  expect_decoded(c);
}

// Packed rows as the rows of GEMMs.
void expect_wide(const verify::Config& c) {
  EXPECT_THAT(plan_text(c), testing::HasSubstr(".wide = true"));
  expect_decoded(c);
}
TEST(SimDecode, ManyRows_AreRight) {
  for (const int64_t head_dim : {64, 40, 128, 256}) {
    if (is_skipped(head_dim)) continue;
    verify::Config c = few_rows(head_dim, 4, 52, 4);  // 52 rows
    c.batch = 4;
    c.mask = FA3_MASK_CAUSAL;
    expect_wide(c);
    if (head_dim == 256) continue;
    c = few_rows(head_dim, 3, 24, 1);  // 72 rows
    c.mask = FA3_MASK_WINDOW, c.left = 130, c.right = 1;
    expect_wide(c);
  }
  verify::Config c = few_rows(64, 4, 64, 4);
  c.batch = 4;
  c.softcap = 20, c.alibi = true;
  expect_wide(c);
  c.mask = FA3_MASK_CAUSAL;
  expect_wide(c);
  c = few_rows(64, 4, 25, 1);
  c.out_dtype = FA3_F32;
  expect_wide(c);
  c.magnitude = 40;  // maxima grow from tile to tile
  expect_wide(c);
}

// Tiles of rows that see the same keys: units cut by themselves, or copies of the line, which CTAs
// take turns at; with as many tiles of rows in all sequences, or not.
TEST(SimDecode, SeveralTilesOfRows_AreRight) {
  verify::Config c = few_rows(64, 5, 32, 1);  // 160 rows
  c.mask = FA3_MASK_CAUSAL;
  expect_wide(c);
  c.seqlen_kv = 1500;
  expect_wide(c);
  c.mask = FA3_MASK_WINDOW, c.left = 300, c.right = 0;
  expect_wide(c);
  c.batch = 5;
  c.seqused_kv = {1500, 1, 700, 130, 0};
  expect_wide(c);
  c.seqused_q = {5, 1, 3, 2, 4};
  expect_wide(c);
  c = few_rows(64, 0, 32, 2);
  c.varlen_q = {16, 3, 9, 20}, c.varlen_kv = {300, 900, 64, 400};
  c.spare_q = 30, c.spare_kv = 5;
  c.mask = FA3_MASK_CAUSAL;
  expect_wide(c);
  c.varlen_q = {16, 16, 16, 16};  // two tiles each, and 4 of no sequence
  expect_wide(c);
  c.spare_q = 0;
  expect_wide(c);
  expect_wide(few_rows(64, 1, 256, 1));
  for (const int splits : {1, 2, 3}) {
    c.numbers["num_splits"] = splits;
    expect_wide(c);
  }
}

// Sequences without queries, keys or both, rows of no sequence, and lengths at the edges of tiles.
TEST(SimDecode, LengthsOnTheDevice_AreRight) {
  for (const int64_t heads : {8, 64}) {  // of one group the latter has many rows
    verify::Config c = few_rows(64, 0, heads, 2);
    c.varlen_q = {1, 4, 0, 2, 3, 1}, c.varlen_kv = {300, 0, 5, 64, 1000, 129};
    c.spare_q = 3, c.spare_kv = 70;
    c.mask = FA3_MASK_CAUSAL;
    expect_decoded(c);
    c = few_rows(64, 2, heads, 2);
    c.batch = 6;
    c.seqused_kv = {0, 1, 127, 128, 129, 600};
    expect_decoded(c);
    c.seqused_kv = {0, 0, 0, 0, 0, 0};
    expect_decoded(c);
    c.seqused_q = {0, 1, 2, 0, 1, 2}, c.seqused_kv = {600, 0, 600, 0, 2, 3};
    expect_decoded(c);
  }
}

TEST(SimDecode, OtherProblems_KeepTheForward) {
  verify::Config c = few_rows(64, 200, 8, 2);
  EXPECT_THAT(plan_text(c), testing::Not(testing::HasSubstr("decode<")));
  c = few_rows(64, 1, 8, 2);
  c.sequence_ids = 3;
  EXPECT_THAT(plan_text(c), testing::Not(testing::HasSubstr("decode<")));
}

TEST(SimDecode, NumSplitsAndSmMargin_AreRightAndSeenInThePlan) {
  verify::Config c = few_rows(64, 2, 8, 2);
  const auto ctas = [&] {
    const std::string plan = plan_text(c);
    const size_t at = plan.find("\"ctas\": ");
    return at == std::string::npos ? -1 : std::stoi(plan.substr(at + 8));
  };
  const int all = ctas();
  ASSERT_GT(all, 1);
  c.numbers["sm_margin"] = 1;
  EXPECT_EQ(ctas(), all - 1);
  expect_decoded(c);
  c.numbers["sm_margin"] = 1000;
  EXPECT_EQ(ctas(), 1);
  expect_decoded(c);
  c.numbers["sm_margin"] = 0;
  for (const int splits : {1, 2, 5}) {
    c.numbers["num_splits"] = splits;
    EXPECT_THAT(plan_text(c), testing::HasSubstr("\"num_splits\": " + std::to_string(splits)));
    expect_decoded(c);
  }
}

// A row's bits do not depend on the order in which the simulator runs CTAs and warps.
TEST(SimDecode, SameBitsUnderEverySchedule) {
  const verify::Config c = few_rows(64, 1, 16, 2);
  const verify::Tensors tensors = verify::make_tensors(c);
  std::string first;
  for (const char* seed : {"0", "1", "2", "3"}) {
    const kit::ScopedEnv order("FA3_SIM_SEED", seed);
    const kit::Context context = kit::make_context(simulator_options());
    const fa3_forward_args args = verify::forward_args(c, tensors);
    ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
    const size_t bytes = static_cast<size_t>(c.batch * c.heads_q * c.head_dim_v) * 2;
    const std::string bits(static_cast<const char*>(args.o.data), bytes);
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fa3
