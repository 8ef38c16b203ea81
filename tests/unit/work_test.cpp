// SPDX-License-Identifier: BSD-3-Clause
// work_test.cpp — visible pairs and tiles against counting them one by one.
#include "plan/work.h"

#include <gtest/gtest.h>

#include <random>

namespace fa3 {
namespace {

Problem problem(int64_t len_q, int64_t len_kv, fa3_mask mask = FA3_MASK_FULL, int64_t left = 0,
                int64_t right = 0) {
  Problem p;
  p.batch = 3;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = 64;
  p.head_dim_v = 32;
  p.q.rows = p.q.max_seqlen = len_q;
  p.kv.rows = p.kv.max_seqlen = len_kv;
  p.mask = mask;
  p.left = left;
  p.right = right;
  return p;
}

bool visible(const Problem& p, int64_t i, int64_t j) {
  const int64_t position = i + p.kv.rows - p.q.rows;
  if (const int64_t c = p.attention_chunk; c > 0 && (position < 0 || position / c != j / c))
    return false;
  if (p.mask == FA3_MASK_FULL) return true;
  if (p.mask == FA3_MASK_CAUSAL) return j <= position;
  return (p.left < 0 || j >= position - p.left) && (p.right < 0 || j <= position + p.right);
}

TEST(Work, RandomDenseProblems_AsCounted) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int n = 0; n < 3000; ++n) {
    const fa3_mask mask = static_cast<fa3_mask>(draw(0, 2));
    const bool window = mask == FA3_MASK_WINDOW;
    Problem p = problem(draw(0, 20), draw(0, 20), mask, window ? draw(-1, 25) : 0,
                        window ? draw(-1, 25) : 0);
    p.attention_chunk = draw(0, 1) * draw(1, 22);
    const int64_t tile_q = draw(1, 8), tile_kv = draw(1, 8);
    int64_t pairs = 0, tiles = 0, all_tiles = 0;
    for (int64_t q = 0; q < p.q.rows; q += tile_q) {
      for (int64_t k = 0; k < p.kv.rows; k += tile_kv) {
        int64_t in_tile = 0;
        for (int64_t i = q; i < std::min(q + tile_q, p.q.rows); ++i) {
          for (int64_t j = k; j < std::min(k + tile_kv, p.kv.rows); ++j)
            in_tile += visible(p, i, j);
        }
        pairs += in_tile;
        tiles += in_tile > 0;
        ++all_tiles;
      }
    }
    const Work work = work_of(p);
    ASSERT_EQ(work.pairs, 12.0 * pairs)
        << p.q.rows << " " << p.kv.rows << " " << mask << " " << p.left << " " << p.right
        << " chunk " << p.attention_chunk;
    ASSERT_EQ(work.flops, 2.0 * 12 * pairs * (64 + 32));
    ASSERT_TRUE(work.exact);
    const Tiles counted = tiles_of(p, tile_q, tile_kv);
    ASSERT_EQ(counted.visited, 12.0 * tiles)
        << p.q.rows << " " << p.kv.rows << " " << mask << " " << p.left << " " << p.right;
    ASSERT_EQ(counted.skipped, 12.0 * (all_tiles - tiles));
  }
}

TEST(Work, Backward_IsTwoAndAHalfTimesTheForward) {
  Problem p = problem(100, 100);
  const double forward = work_of(p).flops;
  p.op = FA3_OP_BACKWARD;
  EXPECT_EQ(work_of(p).flops, 2.5 * forward);
}

TEST(Work, LongestSequences_DoNotOverflow) {
  const Problem p = problem(INT32_MAX, INT32_MAX, FA3_MASK_CAUSAL);
  const double n = INT32_MAX;
  EXPECT_DOUBLE_EQ(work_of(p).pairs, 12 * n * (n + 1) / 2);
}

TEST(Work, SequenceIds_AreAnUpperBound) {
  Problem p = problem(100, 100);
  p.layout[kSequenceIdsQ] = p.layout[kSequenceIdsKv] = {FA3_I32, 100, 1, 0};
  EXPECT_EQ(work_of(p).pairs, 12.0 * 100 * 100);
  EXPECT_FALSE(work_of(p).exact);
}

TEST(Work, Varlen_IsAnUpperBound) {
  Problem p = problem(100, 100, FA3_MASK_CAUSAL);
  p.q.varlen = p.kv.varlen = true;
  p.q.max_seqlen = p.kv.max_seqlen = 40;
  const Work work = work_of(p);
  EXPECT_FALSE(work.exact);
  const int lens[][3] = {{40, 40, 20}, {33, 33, 34}, {0, 40, 40}};
  for (const auto& len : lens) {
    double pairs = 0;
    for (int n : len) pairs += n * (n + 1) / 2.0;
    EXPECT_GE(work.pairs, 4 * pairs);
  }
}

}  // namespace
}  // namespace fa3
