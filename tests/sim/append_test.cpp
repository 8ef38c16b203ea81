// SPDX-License-Identifier: BSD-3-Clause
// append_test.cpp — appending to caches on Hopper in the simulator: a kernel before those of
// attention, whatever these are; every cache, layout, type and rotation.
#include "tools/verify/append.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/kit/run.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

verify::Config cached(int64_t seqlen_q, int64_t page_size) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = 3;
  c.heads_q = 4, c.heads_kv = 2;
  c.seqlen_q = seqlen_q, c.seqlen_kv = 330;
  c.seqused_kv = {330, seqlen_q, 70 + seqlen_q};
  c.append = {seqlen_q, seqlen_q, seqlen_q};
  c.page_size = page_size;
  c.alignment = 16;
  return c;
}

// Whether the plan has all of these words.
void expect_right_by(const std::vector<std::string>& words, const verify::Config& c) {
  const verify::Tensors tensors = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, tensors);
  std::string plan(1 << 16, ' ');
  size_t size = 0;
  ASSERT_EQ(fa3_explain(simulator(), FA3_OP_FORWARD, &args, plan.data(), plan.size(), &size),
            FA3_OK)
      << fa3_last_error();
  for (const std::string& word : words) EXPECT_NE(plan.find(word), std::string::npos) << word;
  kit::expect_right(c, simulator());
}

// By a kernel before, and with the decode kernel's own.
const std::string kBefore = "sm90::append<", kDecode = "sm90::decode<", kFwd = "sm90::fwd<",
                  kOwn = ".appends = true";

// Few queries: what a CTA alone reads it writes.
TEST(SimAppend, FewQueries) {
  for (const int64_t page_size : {0, 16}) {
    verify::Config c = cached(page_size == 16 ? 3 : 1, page_size);
    for (const int64_t rotary_dim : {0, 64, 48}) {
      c.rotary_dim = rotary_dim;
      c.numbers["rotary_layout"] = rotary_dim == 48 ? 1 : 0;
      c.seed = rotary_dim == 64 ? 1 : 4;  // tables of BF16
      expect_right_by({kDecode, kOwn}, c);
      c.numbers["rotary_layout"] = 0;
    }
    c.mask = FA3_MASK_CAUSAL;
    c.rotary_dim = 32;
    expect_right_by({kDecode, kOwn}, c);
    c.mask = FA3_MASK_WINDOW, c.left = 40, c.right = 0;
    c.seqlen_q = 1;
    expect_right_by({kDecode, kOwn}, c);
    c.numbers["batch_invariant"] = 1;
    kit::expect_right(c, simulator());
  }
  // Keys from the middle of a tile on to the middle of another.
  verify::Config c = cached(2, 16);
  c.seqused_kv = {330, 200, 136}, c.append = {120, 120, 120};
  c.seed = 1;
  c.rotary_dim = 64;
  expect_right_by({kDecode, kOwn}, c);
}

// Where it cannot: pages of any size, tables of F32, pieces that are not whole, new keys that no
// query sees.
TEST(SimAppend, FewQueries_ByAKernelBefore) {
  for (const int64_t page_size : {1, 100}) {
    verify::Config c = cached(1, page_size);
    for (const int64_t rotary_dim : {0, 64}) {
      c.rotary_dim = rotary_dim;
      expect_right_by({page_size == 1 ? kBefore : kDecode, kDecode}, c);
      ++c.seed;
    }
    c.kv_begin = true;
    kit::expect_right(c, simulator());
  }
  verify::Config c = cached(2, 0);
  c.kv_slots = 5;
  c.rotary_dim = 64;
  expect_right_by({kBefore, kDecode}, c);
  c.rotary_dim = 62;
  expect_right_by({kBefore, kDecode}, c);
  c = cached(1, 16);
  c.seqused_kv = {330, 9, 70}, c.append = {9, 9, 9};
  c.mask = FA3_MASK_WINDOW, c.left = 3, c.right = 0;
  expect_right_by({kBefore, kDecode}, c);
  c.left = 8;
  expect_right_by({kOwn, kDecode}, c);
  c.seqused_q = {1, 0, 1};
  expect_right_by({kBefore, kDecode}, c);
}

TEST(SimAppend, Prompts) {
  verify::Config c = cached(70, 16);
  c.mask = FA3_MASK_CAUSAL;
  for (const int64_t rotary_dim : {0, 32, 64}) {
    c.rotary_dim = rotary_dim;
    expect_right_by({kBefore, kFwd}, c);
    ++c.seed;
  }
  c.page_size = 0;
  c.mask = FA3_MASK_WINDOW, c.left = 60, c.right = 0;
  expect_right_by({kBefore, kFwd}, c);
  c.layout = verify::Layout::kHeadsFirst;
  expect_right_by({kBefore, kFwd}, c);
  c.batch = 1, c.seqused_kv = {}, c.seqlen_kv = 70, c.append = {70};
  c.layout = verify::Layout::kSeqFirst;
  expect_right_by({kBefore, kFwd}, c);
}

// Packed new keys; prompts and tokens in one call; rows of no sequence.
TEST(SimAppend, Packed) {
  verify::Config c = cached(0, 16);
  c.batch = 4;
  c.varlen_q = {90, 1, 0, 4}, c.spare_q = 2;
  c.seqused_kv = {300, 129, 17, 4};
  c.append = {90, 1, 17, 0};
  c.packed_new = true;
  c.mask = FA3_MASK_CAUSAL;
  for (const int64_t rotary_dim : {0, 64}) {
    c.rotary_dim = rotary_dim;
    expect_right_by({kBefore, kFwd, kDecode}, c);
    ++c.seed;
  }
  c.varlen_q = {3, 1, 0, 1};
  expect_right_by({kBefore, kDecode}, c);
}

TEST(SimAppend, F16_AndWideHeads) {
  verify::Config c = cached(2, 0);
  c.dtype = FA3_F16;
  c.rotary_dim = 64;
  expect_right_by({kBefore}, c);
  if (kit::kSanitized) return;
  c = cached(2, 16);
  c.head_dim_qk = c.head_dim_v = 128;
  c.rotary_dim = 128;
  expect_right_by({kDecode}, c);
}

TEST(SimAppend, WithoutQueries) {
  verify::Config c = cached(5, 16);
  c.seqlen_q = 0;
  kit::expect_right(c, simulator());
}

// No bit depends on which step writes the keys.
TEST(SimAppend, BitsAreThoseOfAttentionAfterwards) {
  for (const int64_t queries : {1, 70}) {
    verify::Config c = cached(queries, 16);
    c.mask = FA3_MASK_CAUSAL;
    c.rotary_dim = 64;
    const verify::Tensors t = verify::make_tensors(c);
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    const auto o = kit::bytes_of(args.o), lse = kit::bytes_of(args.lse);
    const fa3_forward_args after = verify::after_appending(args, t);
    ASSERT_EQ(fa3_forward(simulator(), &after, nullptr), FA3_OK) << fa3_last_error();
    EXPECT_EQ(kit::bytes_of(args.o), o);
    EXPECT_EQ(kit::bytes_of(args.lse), lse);
  }
}

TEST(SimAppend, RefusesWhatNoKernelTakes) {
  verify::Config c = cached(2, 0);
  c.dtype = FA3_F32;
  const verify::Tensors t = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, t);
  EXPECT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_UNSUPPORTED);
  EXPECT_THAT(fa3_last_error(), testing::HasSubstr("f32"));
}

}  // namespace
}  // namespace fa3
