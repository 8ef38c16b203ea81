// SPDX-License-Identifier: BSD-3-Clause
// cache_test.cpp — keys in pages, in slots and from any row on, on Hopper in the simulator: by the
// kernel of few queries and by the forward's own, whole tiles, runs and rows at a time. Whatever no
// sequence needs is NaN, and entries of the table behind a length name no page.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/kit/run.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

verify::Config cached(int64_t head_dim, int64_t seqlen_q, int64_t page_size) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.batch = 4;
  c.heads_q = 4, c.heads_kv = 2;
  c.seqlen_q = seqlen_q, c.seqlen_kv = 400;
  c.seqused_kv = {400, 0, 129, 17};
  c.page_size = page_size;
  c.alignment = 16;
  return c;
}
// The parts of a kernel's name in its plan.
void expect_right_by(const std::string& kernel, const std::string& source,
                     const verify::Config& c) {
  const std::string plan = plan_text(c);
  EXPECT_THAT(plan, testing::HasSubstr("sm90::" + kernel + "<"));
  EXPECT_THAT(plan, testing::HasSubstr("KvSource::" + source));
  kit::expect_right(c, simulator());
}

TEST(SimCache, FewQueries_InPagesOfAnySize) {
  expect_right_by("decode", "kRows", cached(64, 1, 1));
  expect_right_by("decode", "kRows", cached(64, 3, 3));
  expect_right_by("decode", "kRuns", cached(64, 1, 16));
  expect_right_by("decode", "kRuns", cached(64, 2, 48));
  expect_right_by("decode", "kRuns", cached(64, 1, 100));
  expect_right_by("decode", "kTiles", cached(64, 1, 256));
}

TEST(SimCache, FewQueries_MasksAndHeadDims) {
  verify::Config c = cached(64, 3, 16);
  c.mask = FA3_MASK_CAUSAL;
  expect_right_by("decode", "kRuns", c);
  c.mask = FA3_MASK_WINDOW, c.left = 100, c.right = 1, c.page_size = 1;
  expect_right_by("decode", "kRows", c);
  expect_right_by("decode", "kRuns", cached(40, 1, 16));
  if (!kit::kSanitized) expect_right_by("decode", "kRuns", cached(128, 1, 16));
}

// 96 packed rows of a KV head, or 180.
TEST(SimCache, FewQueriesOfManyHeads) {
  const auto many = [](int64_t seqlen_q, int64_t page_size) {
    verify::Config c = cached(64, seqlen_q, page_size);
    c.heads_q = seqlen_q == 1 ? 192 : 120;
    c.mask = FA3_MASK_CAUSAL;
    EXPECT_THAT(plan_text(c), testing::HasSubstr(".wide = true"));
    return c;
  };
  expect_right_by("decode", "kRows", many(1, 1));
  expect_right_by("decode", "kRuns", many(1, 16));
  expect_right_by("decode", "kTiles", many(3, 256));
  expect_right_by("decode", "kRows", many(3, 3));
}

TEST(SimCache, ManyQueries_InPagesOfAnySize) {
  verify::Config c = cached(64, 70, 16);
  c.mask = FA3_MASK_CAUSAL;
  expect_right_by("fwd", "kRuns", c);
  c.page_size = 3;
  expect_right_by("fwd", "kRows", c);
  c.page_size = 128, c.seqlen_q = 130;
  expect_right_by("fwd", "kRuns", c);
  c = cached(40, 70, 1);
  c.mask = FA3_MASK_WINDOW, c.left = 50, c.right = 0;
  expect_right_by("fwd", "kRows", c);
  if (!kit::kSanitized) expect_right_by("fwd", "kRuns", cached(128, 70, 48));
}

TEST(SimCache, PackedQueries) {
  verify::Config c = cached(64, 0, 16);
  c.batch = 0;
  c.varlen_q = {90, 70, 80, 60}, c.spare_q = 2;
  c.mask = FA3_MASK_CAUSAL;
  expect_right_by("fwd", "kRuns", c);
  EXPECT_THAT(plan_text(c), testing::Not(testing::HasSubstr("sm90_few_queries")));
  c.varlen_q = {3, 1, 0, 1};
  expect_right_by("decode", "kRuns", c);
}

// Prompts and single tokens in one call: those of up to 4 queries by the kernel of few.
TEST(SimCache, PromptsAndTokens) {
  const auto expect_shared = [](const verify::Config& c) {
    expect_right_by("fwd", "kRuns", c);
    const std::string plan = plan_text(c);
    const size_t few = plan.find("sm90_few_queries");
    ASSERT_NE(few, std::string::npos);
    // Figures of the second kernel are those of its own sequences.
    const std::string packed = std::to_string(4 * c.heads_q / c.heads_kv);
    EXPECT_NE(plan.find("\"packed_rows\": " + packed + ",", few), std::string::npos) << plan;
  };
  verify::Config c = cached(64, 0, 16);
  c.batch = 0;
  c.varlen_q = {90, 1, 0, 4}, c.spare_q = 2;
  c.mask = FA3_MASK_CAUSAL;
  expect_shared(c);
  c.varlen_q = {1, 70, 5, 1}, c.seqused_kv = {129, 400, 17, 0};
  expect_shared(c);
  c.varlen_q = {5, 70, 6, 8};  // nothing for the other kernel
  c.seqused_q = {5, 1, 0, 3};  // which asks for rows that there are, not for those that count
  expect_shared(c);
  c.varlen_q = {100, 1, 1, 1}, c.seqused_q = {}, c.heads_q = 8;
  c.mask = FA3_MASK_WINDOW, c.left = 60, c.right = 0;
  expect_shared(c);
}

// Of a query of NaN all scores are, and its maximum is no number: it sees keys all the same.
TEST(SimCache, QueryOfNan_GivesNan) {
  for (const int64_t queries : {1, 4, 70}) {
    for (const double batch_invariant : {0., 1.}) {
      verify::Config c = cached(64, queries, 16);
      c.numbers["batch_invariant"] = batch_invariant;
      const verify::Tensors t = verify::make_tensors(c);
      verify::set(t.q.view, {0, queries - 1, 1, 7}, std::numeric_limits<double>::quiet_NaN());
      const fa3_forward_args args = verify::forward_args(c, t);
      ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
      EXPECT_TRUE(std::isnan(verify::get(args.o, {0, queries - 1, 1, 0})));
      EXPECT_TRUE(std::isnan(verify::get(args.lse, {0, 1, queries - 1})));
      for (const verify::OutputResult& r : verify::compare_forward(args))
        EXPECT_TRUE(r.ok) << queries << ": " << verify::to_text(r);
    }
  }
}

TEST(SimCache, SlotsAndBegins) {
  for (const int64_t queries : {2, 70}) {
    const std::string kernel = queries == 2 ? "decode" : "fwd";
    const std::string whole = queries == 2 ? "kTiles" : "kRuns";
    verify::Config c = cached(64, queries, 0);
    c.kv_slots = 6;
    expect_right_by(kernel, whole, c);
    c.seqused_kv = {};
    expect_right_by(kernel, whole, c);
    c = cached(64, queries, 0);
    c.kv_begin = true;
    expect_right_by(kernel, whole, c);
    c.packed_kv = true;
    expect_right_by(kernel, whole, c);
    c.packed_kv = false, c.page_size = 16;  // pages that keys begin within
    expect_right_by(kernel, "kRows", c);
  }
}

}  // namespace
}  // namespace fa3
