// SPDX-License-Identifier: BSD-3-Clause
// serving_masks_test.cpp — chunks, trees and max_logit on the cpu backend, and what they are in
// terms of others: chunks sequence ids, a tree attn_mask.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kit/context.h"
#include "tests/kit/run.h"
#include "tests/kit/thorough.h"

namespace fa3 {
namespace {

using kit::expect_right;
using testing::HasSubstr;
using verify::Config;
using verify::Index;
using verify::Tensors;

class CpuServingMasks : public ::testing::TestWithParam<int32_t> {
 protected:
  static Config config(int64_t q, int64_t kv) {
    Config c;
    c.dtype = GetParam();
    c.batch = 2;
    c.heads_q = 6;
    c.heads_kv = 2;
    c.head_dim_qk = c.head_dim_v = 24;
    c.seqlen_q = q;
    c.seqlen_kv = kv;
    return c;
  }
};
std::string type_of(const testing::TestParamInfo<int32_t>& info) {
  return verify::dtype_text(info.param);
}
INSTANTIATE_TEST_SUITE_P(Types, CpuServingMasks, testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         type_of);

TEST_P(CpuServingMasks, Chunks) {
  for (const auto& [q, kv] : {std::pair(150, 150), {40, 190}, {190, 40}, {1, 90}}) {
    Config c = config(q, kv);
    c.backward = c.dlse = true;
    for (const double chunk : {1.0, 7.0, 64.0, 100.0, 1000.0}) {
      c.numbers["attention_chunk"] = chunk;
      for (c.mask = FA3_MASK_FULL; c.mask <= FA3_MASK_WINDOW; c.mask = fa3_mask(c.mask + 1)) {
        c.left = c.mask == FA3_MASK_WINDOW ? 20 : 0;
        c.right = c.mask == FA3_MASK_WINDOW ? 5 : 0;
        ++c.seed;
        if (c.seed % 3 == 0 || kit::thorough()) expect_right(c);
      }
    }
  }
}

TEST_P(CpuServingMasks, Chunks_WithLengthsAndOtherTerms) {
  Config c = config(60, 90);
  c.numbers["attention_chunk"] = 17;
  c.backward = true;
  c.mask = FA3_MASK_CAUSAL;
  c.seqused_q = {60, 17}, c.seqused_kv = {41, 90};
  expect_right(c);
  c.top_left = true;
  expect_right(c);
  c.alibi = true, c.softcap = 3, c.attn_mask = FA3_BOOL, c.with = {"sinks"};
  expect_right(c);
  c = config(1, 1);
  c.numbers["attention_chunk"] = 30;
  c.varlen_q = {40, 0, 7, 130}, c.varlen_kv = {50, 9, 0, 300};
  c.backward = true;
  expect_right(c);
}

TEST_P(CpuServingMasks, Trees) {
  for (const auto& [q, kv] : {std::pair(5, 200), {64, 700}, {64, 64}, {20, 6}, {1, 1}}) {
    Config c = config(q, kv);
    c.with = {"tree_mask"};
    for (c.seed = 0; c.seed < 3; ++c.seed) expect_right(c);
    c.alibi = true, c.softcap = 2;
    c.with.push_back("sinks");
    expect_right(c);
  }
}

TEST_P(CpuServingMasks, Trees_InCachesWithLengths) {
  Config c = config(20, 300);
  c.with = {"tree_mask"};
  c.batch = 3;
  c.page_size = 16;
  c.seqused_kv = {300, 20, 41};
  expect_right(c);
  c.append = {20, 20, 20}, c.own_pages = true;
  expect_right(c);
  c = config(1, 1);
  c.with = {"tree_mask", "max_logit"};
  c.varlen_q = {3, 0, 40, 20}, c.seqlen_kv = 100;
  c.seqused_kv = {100, 0, 30, 20};
  for (c.seed = 0; c.seed < 2; ++c.seed) expect_right(c);
}

TEST_P(CpuServingMasks, MaxLogit) {
  for (const auto& [q, kv] : {std::pair(150, 150), {3, 700}, {190, 40}, {5, 0}}) {
    Config c = config(q, kv);
    c.with = {"max_logit"};
    expect_right(c);
    c.mask = FA3_MASK_CAUSAL, c.softcap = 4;
    expect_right(c);
    c.softcap = 0, c.softmax_scale = -0.3, c.alibi = true;
    expect_right(c);
    c.attn_mask = FA3_F32, c.magnitude = 6, c.with.push_back("sinks");
    expect_right(c);
  }
  Config c = config(30, 50);
  c.with = {"max_logit"};
  c.varlen_q = {0, 30, 2}, c.spare_q = 3, c.seqused_kv = {9, 50, 0};
  expect_right(c);
  c = config(4, 9);
  c.with = {"max_logit"};
  c.batch = 0;
  expect_right(c);
}

kit::Context context_of(fa3_backend backend) {
  fa3_context_options options = kit::default_options();
  options.backend = backend;
  return kit::make_context(options);
}

// The same bits as by other masks.
TEST(ServingMasks, ChunksAreSequenceIds) {
  const kit::Context reference = context_of(FA3_BACKEND_REFERENCE);
  Config c;
  c.heads_q = c.heads_kv = 2;
  c.seqlen_q = 30, c.seqlen_kv = 50;
  c.numbers["attention_chunk"] = 8;
  c.mask = FA3_MASK_CAUSAL;
  const kit::OutputBits chunks = kit::output_bits(c, reference.get());
  c.numbers.clear();
  c.sequence_ids = 2;
  const Tensors t = verify::make_tensors(c);
  for (int64_t i = 0; i < 30; ++i) verify::set(t.sequence_ids_q.view, {0, i}, (i + 20) / 8);
  for (int64_t j = 0; j < 50; ++j) verify::set(t.sequence_ids_kv.view, {0, j}, j / 8);
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(reference.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  kit::OutputBits ids;
  kit::add_outputs(args, ids);
  EXPECT_EQ(chunks, ids);
}

TEST(ServingMasks, TreesAreAttnMasks) {
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const kit::Context context = context_of(backend);
    Config c;
    c.heads_q = c.heads_kv = 2;
    c.seqlen_q = 40, c.seqlen_kv = 300;
    c.with = {"tree_mask"};
    const kit::OutputBits tree = kit::output_bits(c, context.get());
    const Tensors bits = verify::make_tensors(c);
    c.with.clear();
    c.attn_mask = FA3_BOOL, c.mask_dims = "qk";
    const Tensors t = verify::make_tensors(c);
    for (int64_t i = 0; i < 40; ++i)
      for (int64_t j = 0; j < 300; ++j) {
        const int64_t bit = j - 260;
        const auto word = [&] {
          return static_cast<uint32_t>(
              static_cast<int64_t>(verify::get(bits.find("tree_mask")->view, {0, i, bit / 32})));
        };
        verify::set(t.attn_mask.view, {0, 0, i, j}, bit < 0 || (word() >> bit % 32 & 1) != 0);
      }
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
    kit::OutputBits mask;
    kit::add_outputs(args, mask);
    EXPECT_EQ(tree, mask);
  }
}

TEST(ServingMasks, TreesWithOtherLengthsThanNewKeys_AreRefused) {
  Config c;
  c.seqlen_kv = 50;
  c.varlen_q = {3, 4}, c.seqused_kv = {50, 9};
  c.append = {3, 2}, c.packed_new = true;
  c.with = {"tree_mask"};
  const Tensors t = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, t);
  const kit::Context context = context_of(FA3_BACKEND_CPU);
  EXPECT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("sequence 1 has 4 queries and 2 new keys"));
}

}  // namespace
}  // namespace fa3
