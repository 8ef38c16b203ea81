// SPDX-License-Identifier: BSD-3-Clause
// serving_masks_test.cpp — chunks, trees and max_logit on Hopper in the simulator: each kernel that
// knows them.
#include <gmock/gmock.h>

#include <string>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using verify::Config;

void expect_right(const Config& c) { kit::expect_right(c, simulator()); }

TEST(SimChunks, Forward) {
  for (const double chunk : {1.0, 37.0, 128.0, 200.0}) {
    Config c = grouped(200, 230);
    c.numbers["attention_chunk"] = chunk;
    expect_right(c);
    c.mask = FA3_MASK_CAUSAL;
    expect_right(c);
    c.mask = FA3_MASK_WINDOW, c.left = 50, c.right = 9;
    ++c.seed;
    expect_right(c);
  }
  Config c = grouped(300, 100);  // queries before all keys
  c.numbers["attention_chunk"] = 64;
  expect_right(c);
  c.varlen_q = {150, 0, 3, 20}, c.varlen_kv = {140, 3, 0, 165};
  c.softcap = 5, c.alibi = true, c.with = {"sinks"};
  expect_right(c);
}

TEST(SimChunks, Backward) {
  for (const double chunk : {37.0, 128.0}) {
    Config c = grouped(200, 230);
    c.backward = true;
    c.numbers["attention_chunk"] = chunk;
    expect_right(c);
    c.mask = FA3_MASK_CAUSAL;
    expect_right(c);
    c.deterministic = true;
    expect_right(c);
  }
  Config c = grouped(1, 1);
  c.backward = true;
  c.varlen_q = {150, 0, 70}, c.varlen_kv = {100, 3, 165};
  c.numbers["attention_chunk"] = 50;
  expect_right(c);
}

TEST(SimChunks, Decode) {
  for (const int64_t queries : {1, 6}) {
    Config c = grouped(queries, 500);
    c.numbers["attention_chunk"] = 190;
    c.mask = FA3_MASK_CAUSAL;
    expect_right(c);
    c.batch = 3, c.page_size = 16, c.seqused_kv = {500, 3, 383};
    expect_right(c);
    c.append = {3, 3, 3}, c.own_pages = true, c.rotary_dim = 64;
    expect_right(c);
    c.append = {}, c.rotary_dim = 0, c.mask = FA3_MASK_FULL;
    c.numbers["batch_invariant"] = 1;
    expect_right(c);
  }
}

TEST(SimTrees, FewAndManyRows) {
  for (const int64_t queries : {3, 16, 64}) {
    Config c = grouped(queries, 300);
    c.with = {"tree_mask"};
    for (c.seed = 0; c.seed < 2; ++c.seed) expect_right(c);
    c.seqlen_kv = queries;  // a tree alone: rows without bits see nothing
    expect_right(c);
    c.seqlen_kv = queries / 2;
    expect_right(c);
  }
}

TEST(SimTrees, InCaches) {
  for (const int64_t queries : {5, 40}) {
    Config c = grouped(queries, 300);
    c.with = {"tree_mask"};
    c.batch = 3, c.page_size = 16, c.seqused_kv = {300, queries, 201};
    expect_right(c);
    c.append = {queries, queries, queries}, c.own_pages = true;
    expect_right(c);
  }
  Config c = grouped(1, 300);
  c.with = {"tree_mask"};
  c.varlen_q = {3, 0, 40, 20}, c.spare_q = 2;
  c.seqused_kv = {100, 0, 300, 20};
  expect_right(c);
}

TEST(SimMaxLogit, ForwardAndDecode) {
  for (const int64_t queries : {200, 2}) {
    Config c = grouped(queries, 230);
    c.with = {"max_logit"};
    for (c.seed = 0; c.seed < 2; ++c.seed) expect_right(c);
    c.mask = FA3_MASK_CAUSAL, c.softcap = 4;
    expect_right(c);
    c.softcap = 0, c.seqlen_kv = 0;  // −∞
    expect_right(c);
    c.batch = 0;
    expect_right(c);
  }
  Config c = grouped(1, 1);
  c.with = {"max_logit", "sinks"};
  c.varlen_q = {150, 0, 3}, c.varlen_kv = {0, 3, 140}, c.spare_q = 5;
  expect_right(c);
}

// Negative floats are in the reverse order of their bits.
TEST(SimMaxLogit, AllScoresNegative) {
  for (const int64_t queries : {150, 2}) {
    Config c = grouped(queries, 300);
    c.with = {"max_logit"};
    c.softmax_scale = 1;
    const verify::Tensors t = verify::make_tensors(c);
    verify::fill(t.q.view, 1);
    for (int64_t j = 0; j < 300; ++j)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t d = 0; d < 64; ++d)
          verify::set(t.k.view, {0, j, h, d}, j == 200 - 50 * h ? -0.5 : -1 - (j % 3) * 0.25);
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    for (int64_t h = 0; h < 4; ++h) EXPECT_EQ(verify::get(args.max_logit, {h}), -32) << h;
  }
}

TEST(SimServingMasks, RefuseWhatNoKernelTakes) {
  struct Case {
    Config c;
    const char* says;
  };
  Config invariant = grouped(2, 300), bytes = grouped(200, 300), floats = grouped(5, 300);
  invariant.with = {"max_logit"}, invariant.numbers["batch_invariant"] = 1;
  bytes.dtype = FA3_I8, bytes.with = {"max_logit"};
  floats.dtype = FA3_F32, floats.with = {"tree_mask"};
  for (const Case& refused :
       {Case{invariant, "max_logit"}, Case{bytes, "max_logit"}, Case{floats, "f32"}}) {
    const verify::Tensors t = verify::make_tensors(refused.c);
    const fa3_forward_args args = verify::forward_args(refused.c, t);
    EXPECT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_UNSUPPORTED);
    EXPECT_THAT(fa3_last_error(), testing::HasSubstr(refused.says));
  }
}

}  // namespace
}  // namespace fa3
