// SPDX-License-Identifier: BSD-3-Clause
// codes_cache_test.cpp — keys and values of E4M3 that the decode kernel widens, on Hopper in the
// simulator: beside queries of 16 bits and of E4M3, dense and in caches. Whatever no sequence needs
// is NaN, scales included.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/kit/run.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using Of = verify::Scales::Of;

verify::Config codes(int64_t head_dim, int64_t seqlen_q) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.kv_dtype = FA3_F8_E4M3;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.batch = 3;
  c.heads_q = 4, c.heads_kv = 2;
  c.seqlen_q = seqlen_q, c.seqlen_kv = 600;
  c.seqused_kv = {600, 0, 129};
  c.alignment = 16;
  return c;
}
verify::Config in_pages(verify::Config c, int64_t page_size) {
  c.page_size = page_size;
  return c;
}
// q of E4M3, as engines give it.
verify::Config of_codes(verify::Config c, fa3_dtype out = FA3_BF16) {
  c.dtype = FA3_F8_E4M3, c.kv_dtype = 0, c.out_dtype = out;
  return c;
}

void expect_widened(const verify::Config& c) {
  EXPECT_THAT(plan_text(c), testing::HasSubstr(".kv8 = true")) << verify::replay_command(c);
  kit::expect_right(c, simulator());
}

TEST(SimCodesCache, DenseKeys) {
  expect_widened(codes(64, 1));
  expect_widened(codes(64, 3));
  expect_widened(codes(48, 2));
  verify::Config c = codes(64, 1);
  c.dtype = FA3_F16;
  expect_widened(c);
  c.dtype = FA3_BF16;
  c.magnitude = 300;
  expect_widened(c);
  if (!kit::kSanitized) expect_widened(codes(128, 2));
}

TEST(SimCodesCache, QueriesOfCodes) {
  verify::Config c = of_codes(codes(128, 2));
  c.q_scale = {Of::kGroups};
  if (!kit::kSanitized) expect_widened(c);
  c = of_codes(in_pages(codes(64, 1), 16));
  expect_widened(c);
  c.q_scale = {Of::kGroups}, c.k_scale = {Of::kTensor}, c.v_scale = {Of::kNone};
  c.mask = FA3_MASK_CAUSAL, c.seqlen_q = 4;
  expect_widened(c);
}

TEST(SimCodesCache, Caches) {
  expect_widened(in_pages(codes(64, 1), 16));
  expect_widened(in_pages(codes(64, 2), 4));
  expect_widened(in_pages(codes(64, 1), 1));
  expect_widened(in_pages(codes(64, 3), 3));
  verify::Config c = codes(64, 2);
  c.kv_slots = 5;
  c.mask = FA3_MASK_WINDOW, c.left = 90, c.right = 0;
  EXPECT_THAT(plan_text(in_pages(codes(64, 1), 1)), testing::HasSubstr("kRows"));
  c.kv_slots = 0, c.page_size = 32;
  expect_widened(c);
}

// A NaN in a value reaches rows that see it, however small its weight: of consumers that take turns
// one has the greatest score, another the NaN.
TEST(SimCodesCache, NanOfNoWeight_ReachesTheRow) {
  for (const int64_t key : {0, 130, 300, 590}) {
    verify::Config c = codes(64, 1);
    c.batch = 1, c.seqused_kv = {};
    c.magnitude = 4000;  // one key takes all
    const verify::Tensors t = verify::make_tensors(c);
    verify::set(t.v.view, {0, key, 1, 7}, std::numeric_limits<double>::quiet_NaN());
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(kit::run_planned(simulator(), args, std::byte{0xff}), FA3_OK) << fa3_last_error();
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(std::isnan(verify::get(t.o.view, {0, 0, head, 7})), head >= 2) << key;
      EXPECT_FALSE(std::isnan(verify::get(t.o.view, {0, 0, head, 6}))) << key;
    }
  }
}

// More packed rows than a tile has, of prompts.
TEST(SimCodesCache, ManyQueries) {
  verify::Config c = codes(64, 70);
  c.mask = FA3_MASK_CAUSAL;
  expect_widened(c);
  expect_widened(in_pages(c, 16));
  c = in_pages(codes(64, 0), 16);
  c.batch = 0;
  c.varlen_q = {40, 1, 0}, c.spare_q = 2;
  c.mask = FA3_MASK_CAUSAL;
  expect_widened(c);
}

}  // namespace
}  // namespace fa3
