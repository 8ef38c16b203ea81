// SPDX-License-Identifier: BSD-3-Clause
// fwd_plan_8bit_test.cpp — which row of the table 8-bit problems get: by the blocks of their scales
// and by the tiles of an image of V.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/plan.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

FwdPlan plan_of(const Problem& p) {
  const Result<FwdPlan> plan = make_fwd_plan(p, device());
  EXPECT_TRUE(plan.ok()) << plan.status().message;
  return plan.ok() ? plan.value() : FwdPlan{};
}

void expect_declined(const Problem& p, const std::vector<std::string>& parts) {
  const Result<FwdPlan> plan = make_fwd_plan(p, device());
  ASSERT_FALSE(plan.ok()) << testing::PrintToString(parts);
  EXPECT_EQ(plan.status().code, FA3_UNSUPPORTED);
  for (const std::string& part : parts)
    EXPECT_THAT(plan.status().message, testing::HasSubstr(part));
}

Problem eight_bits(int64_t d, fa3_dtype qk, fa3_dtype v, int64_t queries = 5000) {
  Problem p = problem(d, d, queries, 5000);
  p.layout[kQ] = dense(qk, queries, 4, d);
  p.layout[kK] = dense(qk, 5000, 2, d);
  p.layout[kV] = dense(v, 5000, 2, d);
  return p;
}

TEST(FwdPlan8Bit, ScalesOfColumns_InPartsThatAllBlocksHave) {
  const auto columns_of = [](int64_t d, int64_t q, int64_t k, int64_t v) {
    Problem p = eight_bits(d, FA3_F8_E4M3, FA3_F8_E4M3);
    p.scale_block[kQ].cols = q, p.scale_block[kK].cols = k, p.scale_block[kV].cols = v;
    return plan_of(p).config.scores.scale_columns;
  };
  EXPECT_EQ(columns_of(128, 64, 64, 64), 64);
  EXPECT_EQ(columns_of(256, 128, 256, 128), 128);
  EXPECT_EQ(columns_of(256, 128, 0, 64), 64);
  EXPECT_EQ(columns_of(96, 64, 64, 64), 32);
  EXPECT_EQ(columns_of(192, 96, 0, 0), 32);
  EXPECT_EQ(columns_of(128, 128, 256, 128), 0) << "that of all columns";
  for (const TensorId id : {kQ, kK, kV}) {
    Problem p = eight_bits(128, FA3_F8_E4M3, FA3_F8_E4M3);
    p.scale_block[id].cols = 48;
    expect_declined(p, {fmt::format("{}_block.cols=48", tensor_name(id)), "multiple of 32"});
  }
}

TEST(FwdPlan8Bit, ScalesOfColumns_AreLegalForEveryHeadDim) {
  for (int64_t d = 32; d <= 256; d += 16) {
    for (const auto& [qk, v] : {std::pair(FA3_F8_E4M3, FA3_F8_E4M3), std::pair(FA3_I8, FA3_F8_E4M3),
                                std::pair(FA3_I8, FA3_BF16)}) {
      for (const int64_t cols : {32, 64, 128, 160}) {
        for (const int64_t rows : {0, 1, 96}) {
          Problem p = eight_bits(d, qk, v);
          for (const TensorId id : {kQ, kK, kV})
            if (id != kV || v == FA3_F8_E4M3) p.scale_block[id] = {rows, cols};
          const Result<FwdPlan> plan = make_fwd_plan(p, device());
          ASSERT_TRUE(plan.ok()) << plan.status().message;
          const FwdConfig& c = plan.value().config;
          EXPECT_EQ(why_illegal(c), nullptr) << d << ' ' << cols << ' ' << rows;
          EXPECT_EQ(c.scores.column_scales(), cols < d);
          if (!c.scores.column_scales()) continue;
          EXPECT_EQ(cols % c.scores.scale_columns, 0);
          if (rows == 96 && c.scores.kv_scales == KvScales::kTiles) {
            EXPECT_EQ(rows % c.tile.kv, 0);
          }
        }
      }
    }
  }
}

// Kernels before the forward have a grid with heads or sequences along y or z.
TEST(FwdPlan8Bit, MoreThanAGridHolds_IsDeclined) {
  constexpr int64_t kMost = 65535;
  Problem p = eight_bits(64, FA3_F8_E4M3, FA3_F8_E4M3);
  p.heads_q = p.heads_kv = kMost;
  plan_of(p);
  p.heads_q = p.heads_kv = kMost + 1;
  expect_declined(p, {"heads_kv=65536 with v of f8_e4m3", "at most 65535", "split the heads"});
  for (const char* const what : {"heads_q", "batch"}) {
    p = eight_bits(64, FA3_I8, FA3_BF16);
    p.layout[kKOffset] = {FA3_F32, 0, 0, 64};
    int64_t& value = what[0] == 'h' ? p.heads_q : p.batch;
    value = kMost;
    plan_of(p);
    value = kMost + 1;
    const std::vector<std::string> says = {fmt::format("{}=65536 with k_offset", what),
                                           "at most 65535", "split the batch"};
    expect_declined(p, says);
    p.layout[kLse] = {};
    plan_of(p);  // which does not ask for what k_offset adds
    p.softcap = 3;
    expect_declined(p, says);
  }
}

TEST(FwdPlan8Bit, TypesOfVAndO_AreEqualUnlessOIsF32) {
  Problem p = eight_bits(128, FA3_I8, FA3_F16);
  expect_declined(p, {"o is bf16 and v is f16", "need equal types, or o of f32"});
  for (const fa3_dtype o : {FA3_F16, FA3_F32}) {
    p.layout[kO].dtype = o;
    plan_of(p);
  }
}

TEST(FwdPlan8Bit, ImageOfV_ChoosesRowsOfItsTiles) {
  const FwdPlan without = plan_of(eight_bits(128, FA3_F8_E4M3, FA3_F8_E4M3));
  EXPECT_TRUE(without.makes_v_image);
  // One query, whose row would transpose V itself.
  Problem p = eight_bits(128, FA3_F8_E4M3, FA3_F8_E4M3, 1);
  EXPECT_TRUE(plan_of(p).config.transposes() || plan_of(p).config.accumulate.flush_columns > 0);
  p.image = {without.config.tile.kv, 128};
  const FwdPlan with = plan_of(p);
  EXPECT_EQ(with.config.tile.kv, without.config.tile.kv);
  EXPECT_FALSE(with.makes_v_image);
  p.image = {32, 128};
  expect_declined(
      p, {"v_image has tiles of 32 keys and 128 columns", "row 'd128 8bit", "fa3_plan_v_image"});
}

}  // namespace
}  // namespace fa3::sm90
