// SPDX-License-Identifier: BSD-3-Clause
// attn_mask_test.cpp — attn_mask in the Hopper kernels, simulated, through the C interface: judged
// by the FP64 reference, and which tiles and elements are not even read.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using testing::HasSubstr;
using verify::Config;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeast = -std::numeric_limits<float>::max();

Config config(int32_t type, int64_t head_dim = 64) {
  Config c;
  c.dtype = FA3_BF16;
  c.attn_mask = type;
  c.batch = 1;
  c.heads_q = 2;
  c.heads_kv = 1;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.alignment = 16;
  c.seqlen_q = 141;
  c.seqlen_kv = 333;
  return c;
}

struct Kind {
  const char* name;
  void (*change)(Config&);
};
const Kind kKinds[] = {
    {"Plain", [](Config&) {}},
    {"OfAllHeads", [](Config& c) { c.mask_dims = "bqk"; }},
    {"OfAllExpanded", [](Config& c) { c.mask_dims = "qk", c.seed = 1; }},
    {"OfKeys", [](Config& c) { c.mask_dims = "bk", c.batch = 3; }},
    {"OfQueries", [](Config& c) { c.mask_dims = "hq", c.seed = 3; }},
    {"OneNumber", [](Config& c) { c.mask_dims = "", c.seed = 2; }},
    {"HidesNothing", [](Config& c) { c.seed = 5; }},
    {"Causal", [](Config& c) { c.mask = FA3_MASK_CAUSAL; }},
    {"CausalMoreQueries", [](Config& c) { c.mask = FA3_MASK_CAUSAL, c.seqlen_kv = 100; }},
    {"Window", [](Config& c) { c.mask = FA3_MASK_WINDOW, c.left = 70, c.right = 33; }},
    {"NegativeScale", [](Config& c) { c.softmax_scale = -0.2; }},
    {"Alibi", [](Config& c) { c.alibi = true; }},
    {"Documents", [](Config& c) { c.sequence_ids = 4; }},
    {"ShortQueries", [](Config& c) { c.seqlen_q = 3, c.seqlen_kv = 700; }},
    {"Padded", [](Config& c) { c.layout = verify::Layout::kPadded; }},
    {"SequsedBoth",
     [](Config& c) {
       c.batch = 3;
       c.seqused_q = {141, 0, 33}, c.seqused_kv = {300, 40, 129};
     }},
    {"VarlenKeys",
     [](Config& c) {
       c.batch = 3;
       c.varlen_kv = {200, 0, 141};
       c.spare_kv = 6;
     }},
};

class SimAttnMask : public testing::TestWithParam<size_t> {};

TEST_P(SimAttnMask, IsRight) {
  constexpr int32_t kTypes[] = {FA3_BOOL, FA3_F32, FA3_BF16};
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    const int32_t type = kTypes[i];
    // Sanitizers look at the simulator: each kind with one type.
    if (kit::kSanitized && i != GetParam() % std::size(kTypes)) continue;
    SCOPED_TRACE(type);
    Config c = config(type);
    if (i == 1 + GetParam() % 2) c.seqlen_kv = 336;  // rows that TMA can address
    kKinds[GetParam()].change(c);
    if (c.seqlen_q < 64 && type != FA3_F32) continue;  // the simulator's row for few queries
    kit::expect_right(c, simulator());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SimAttnMask, testing::Range(size_t{0}, std::size(kKinds)),
                         [](const auto& info) { return std::string(kKinds[info.param].name); });

TEST(SimAttnMaskRows, HeadDim128_IsRight) {
  if (kit::kSanitized) GTEST_SKIP() << "the simulator has head dim 64 only";
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    Config c = config(FA3_F32, 128);
    c.mask = mask;
    if (mask == FA3_MASK_FULL) c.seqlen_kv = 336;  // rows that TMA can address
    kit::expect_right(c, simulator());
  }
}

TEST(SimAttnMaskRows, Softcap_IsRight) {
  Config c = config(FA3_F32);
  c.softcap = 3;
  c.alibi = true;
  kit::expect_right(c, simulator());
}

// More KV tiles than a word has bits, most of them hidden.
TEST(SimAttnMaskTiles, OfManyGroups_AreRight) {
  for (const int32_t type : {FA3_BOOL, FA3_F32}) {
    if (kit::kSanitized && type == FA3_BOOL) continue;  // one type is enough for sanitizers
    Config c = config(type);
    c.batch = c.heads_q = c.heads_kv = 1;
    c.seqlen_q = 130, c.seqlen_kv = 9000;
    const verify::Tensors t = verify::make_tensors(c);
    const double hides = type == FA3_BOOL ? 0 : -kInf, shows = type == FA3_BOOL ? 1 : 0.5;
    verify::fill(t.attn_mask.view, hides);
    for (const int64_t j : {5, 4095, 4096, 8703})
      for (int64_t i = 0; i < 130; ++i) verify::set(t.attn_mask.view, {0, 0, i, j}, shows);
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    for (const verify::OutputResult& r : verify::compare_forward(args))
      EXPECT_TRUE(r.ok) << verify::to_text(r);
  }
}

// NaN in K and V where the mask hides whole tiles reaches nothing, at either end and between.
TEST(SimAttnMaskTiles, HiddenOnes_AreNotRead) {
  Config c = config(FA3_BOOL);
  c.batch = c.heads_q = c.heads_kv = 1;
  c.seqlen_q = 128, c.seqlen_kv = 128 * 6;
  const verify::Tensors t = verify::make_tensors(c);
  for (int64_t j = 0; j < c.seqlen_kv; ++j) {
    const bool shown = j / 128 == 1 || j / 128 == 4;
    for (int64_t i = 0; i < c.seqlen_q; ++i) verify::set(t.attn_mask.view, {0, 0, i, j}, shown);
    for (int64_t d = 0; d < 64 && !shown; ++d) {
      verify::set(t.k.view, {0, j, 0, d}, kNan);
      verify::set(t.v.view, {0, j, 0, d}, kNan);
    }
  }
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_forward(args))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
}

// NaN in a K that the mask hides within a tile reaches nothing; in the mask itself it does.
TEST(SimAttnMaskTiles, NanOfHiddenKeys_DoesNotCount) {
  Config c = config(FA3_F32);
  c.seed = 2;  // hides nothing
  const verify::Tensors t = verify::make_tensors(c);
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t d = 0; d < 64; ++d) verify::set(t.k.view, {b, 77, 0, d}, kNan);
    for (int64_t h = 0; h < c.heads_q; ++h)
      for (int64_t i = 0; i < c.seqlen_q; ++i) verify::set(t.attn_mask.view, {b, h, i, 77}, -kInf);
    verify::set(t.attn_mask.view, {b, 1, 9, 3}, kNan);
  }
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_TRUE(std::isnan(verify::get(t.o.view, {0, 9, 1, 0})));
  EXPECT_FALSE(std::isnan(verify::get(t.o.view, {0, 10, 1, 0})));
  EXPECT_FALSE(std::isnan(verify::get(t.lse.view, {0, 1, 10})));
}

// A row of the least finite number is a mean of all keys, beside −inf of the others.
TEST(SimAttnMaskRows, LeastFiniteNumber_IsNoMinusInfinity) {
  Config c = config(FA3_F32);
  c.batch = c.heads_q = c.heads_kv = 1;
  c.seed = 2;
  const verify::Tensors t = verify::make_tensors(c);
  for (int64_t j = 0; j < c.seqlen_kv; ++j) {
    verify::set(t.attn_mask.view, {0, 0, 20, j}, kLeast);
    verify::set(t.attn_mask.view, {0, 0, 21, j}, j == 3 ? 0 : kLeast);
    verify::set(t.attn_mask.view, {0, 0, 22, j}, -kInf);
    verify::set(t.attn_mask.view, {0, 0, 23, j}, j % 2 == 0 ? kLeast : -kInf);
  }
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_forward(args))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
  double mean = 0;
  for (int64_t j = 0; j < c.seqlen_kv; ++j) mean += verify::get(t.v.view, {0, j, 0, 5});
  EXPECT_NEAR(verify::get(t.o.view, {0, 20, 0, 5}), mean / 333, 1e-3);
  EXPECT_EQ(verify::get(t.o.view, {0, 22, 0, 5}), 0);
  EXPECT_EQ(verify::get(t.lse.view, {0, 0, 22}), -kInf);
}

// The backward: the simulator has it for masks of FP32.
const Kind kBackwardKinds[] = {
    {"Plain", [](Config&) {}},
    {"FoursOfKeys", [](Config& c) { c.seqlen_kv = 188; }},
    {"HeadDim64", [](Config& c) { c.head_dim_qk = c.head_dim_v = 64; }},
    {"OfAllHeads", [](Config& c) { c.mask_dims = "bqk", c.seed = 1; }},
    {"OfKeys", [](Config& c) { c.mask_dims = "bk", c.batch = 2; }},
    {"OfQueries", [](Config& c) { c.mask_dims = "hq", c.batch = 2; }},
    {"OneNumber", [](Config& c) { c.mask_dims = "", c.seed = 2; }},
    {"Causal", [](Config& c) { c.mask = FA3_MASK_CAUSAL; }},
    {"Seqused",
     [](Config& c) {
       c.batch = 2;
       c.seqused_q = {150, 33}, c.seqused_kv = {190, 70};
     }},
    {"Dlse", [](Config& c) { c.dlse = true; }},
    {"Alibi", [](Config& c) { c.alibi = true; }},  // on the row of head dim 256
    {"Documents", [](Config& c) { c.sequence_ids = 3; }},
};

class SimAttnMaskBackward : public testing::TestWithParam<size_t> {};

TEST_P(SimAttnMaskBackward, IsRight) {
  if (kit::kSanitized) GTEST_SKIP() << "the simulator has head dim 64 only";
  Config c = config(FA3_F32, 128);
  c.backward = c.dattn_mask = true;
  c.seqlen_q = 150, c.seqlen_kv = 190;
  c.heads_q = 2, c.heads_kv = 1;
  kBackwardKinds[GetParam()].change(c);
  kit::expect_right(c, simulator());
}

INSTANTIATE_TEST_SUITE_P(Kinds, SimAttnMaskBackward,
                         testing::Range(size_t{0}, std::size(kBackwardKinds)),
                         [](const auto& info) {
                           return std::string(kBackwardKinds[info.param].name);
                         });

// A backward of the simulator whose o and lse are the forward's.
void run_backward(const Config& c, const verify::Tensors& t) {
  const fa3_forward_args forward = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(simulator(), &forward, nullptr), FA3_OK) << fa3_last_error();
  const fa3_backward_args args = verify::backward_args(c, t);
  ASSERT_EQ(fa3_backward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
}
void set_rows(const verify::Tensor& t, int64_t first, int64_t end, double to) {
  for (int64_t i = first; i < end; ++i)
    for (int64_t h = 0; h < t.view.shape[2]; ++h)
      for (int64_t d = 0; d < t.view.shape[3]; ++d) verify::set(t.view, {0, i, h, d}, to);
}

// NaN in dO of Q tiles in which all keys of a KV tile are hidden, which P = 0 would not keep from
// its gradients: they are not visited. Other KV tiles see them.
TEST(SimAttnMaskBackwardTiles, HiddenOnes_AreNotVisited) {
  Config c = config(FA3_F32);
  c.backward = true;
  c.heads_q = c.heads_kv = 1;
  // More Q tiles than are looked at at a time; with sanitizers, for a minute less, fewer.
  const int64_t tiles = kit::kSanitized ? 8 : 40, last = tiles - 2;
  c.seqlen_q = 64 * tiles, c.seqlen_kv = 300;
  c.seed = 2;
  const verify::Tensors t = verify::make_tensors(c);
  for (int64_t i = 0; i < c.seqlen_q; ++i)
    for (int64_t j = 0; j < 128; ++j)
      verify::set(t.attn_mask.view, {0, 0, i, j}, i / 64 == 3 || i / 64 == last ? 0.5 : -kInf);
  for (int64_t j = 256; j < 300; ++j)  // seen by no query
    for (int64_t i = 0; i < c.seqlen_q; ++i) verify::set(t.attn_mask.view, {0, 0, i, j}, -kInf);
  run_backward(c, t);
  const fa3_backward_args args = verify::backward_args(c, t);
  for (const verify::OutputResult& r : verify::compare_backward(args))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
  set_rows(t.dout, 0, 3 * 64, kNan);
  set_rows(t.dout, 4 * 64, 64 * last, kNan);
  set_rows(t.dout, 64 * (last + 1), 64 * tiles, kNan);
  run_backward(c, t);
  for (const int64_t key : {0, 127, 256, 299}) {
    EXPECT_FALSE(std::isnan(verify::get(t.dv.view, {0, key, 0, 1}))) << key;
    EXPECT_FALSE(std::isnan(verify::get(t.dk.view, {0, key, 0, 1}))) << key;
  }
  EXPECT_TRUE(std::isnan(verify::get(t.dv.view, {0, 128, 0, 1})));
}

// Rows that see keys of a large negative mask only, as padding on the left makes them: LSE is as
// coarse as the mask, and P would be anything. Their dO is 0, so that others' gradients are right.
TEST(SimAttnMaskBackwardRows, OfPaddingAlone_DisturbNoOthers) {
  for (const int64_t head_dim : {64, 128}) {
    if (kit::kSanitized && head_dim != 64) continue;  // the simulator has no other
    for (const double least : {-1e9, kLeast}) {
      Config c = config(FA3_F32, head_dim);
      c.backward = true;
      c.mask = FA3_MASK_CAUSAL;
      c.mask_dims = "k";
      c.seqlen_q = c.seqlen_kv = 150;
      const verify::Tensors t = verify::make_tensors(c);
      for (int64_t j = 0; j < c.seqlen_kv; ++j)
        verify::set(t.attn_mask.view, {0, 0, 0, j}, j < 20 ? least : 0);
      set_rows(t.dout, 0, 20, 0);
      run_backward(c, t);
      const fa3_backward_args args = verify::backward_args(c, t);
      for (const verify::OutputResult& r : verify::compare_backward(args))
        EXPECT_TRUE(r.ok) << head_dim << ", " << least << ": " << verify::to_text(r);
    }
  }
}

// Gradients of a mask where a sequence has no query: tiles without a GEMM.
TEST(SimAttnMaskBackwardRows, OfNoQuery_GiveTheMaskNothing) {
  if (kit::kSanitized) GTEST_SKIP() << "the simulator has no gradient of a mask";
  Config c = config(FA3_F32);
  c.backward = c.dattn_mask = true;
  c.batch = 2;
  c.seqlen_q = 64, c.seqlen_kv = 300;
  c.seqused_q = {0, 64};
  kit::expect_right(c, simulator());
}

// Likewise of other documents.
TEST(SimSequenceIdsBackwardTiles, OfOtherDocuments_AreNotVisited) {
  Config c = config(0);
  c.backward = true;
  c.sequence_ids = 2;
  c.heads_q = c.heads_kv = 1;
  c.seqlen_q = c.seqlen_kv = 384;
  const verify::Tensors t = verify::make_tensors(c);
  for (int64_t i = 0; i < 384; ++i) {
    verify::set(t.sequence_ids_q.view, {0, i}, i < 192 ? -7 : 5);
    verify::set(t.sequence_ids_kv.view, {0, i}, i < 192 ? -7 : 5);
  }
  set_rows(t.dout, 0, 192, kNan);
  run_backward(c, t);
  for (int64_t key = 0; key < 384; ++key)  // KV tiles of 128 keys: the second is of both
    EXPECT_EQ(std::isnan(verify::get(t.dv.view, {0, key, 0, 1})), key < 256) << key;
}

TEST(SimAttnMaskRefusals, NameTheTensorAndTheRemedy) {
  Config c = config(FA3_BOOL);
  c.dtype = FA3_F8_E4M3;
  EXPECT_THAT(verify::check(c, simulator()).error,
              testing::AllOf(HasSubstr("attn_mask with q of f8_e4m3"), HasSubstr("backend cpu")));
  c = config(FA3_BOOL, 96);
  EXPECT_THAT(verify::check(c, simulator()).error, HasSubstr("attn_mask"));
}

}  // namespace
}  // namespace fa3
