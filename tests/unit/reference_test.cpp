// SPDX-License-Identifier: BSD-3-Clause
// reference_test.cpp — the FP64 reference against closed forms and finite differences.
#include "core/dtype.h"
#include "reference_kit.h"

namespace fa3 {
namespace {

using test::Case;
using test::check_gradients;
using test::expect_near;
using test::kInf;
using test::kNan;

// ---- Closed forms ----------------------------------------------------------------------------

TEST(Reference, OneKey_OutputIsItsValue) {
  Case c(1, 1, 1, 1, 1, 2, 3);
  c.p.softmax_scale = 0.5;
  c.q = {1, 2};
  c.k = {3, -1};  // q·k = 1
  c.v = {4, 5, 6};
  c.forward();
  expect_near(c.o, {4, 5, 6});
  expect_near(c.lse, {0.5});
  c.dout = {1, -2, 3};
  c.dlse = {2};
  c.backward();
  expect_near(c.dv, {1, -2, 3});
  // P is constant, so only LSE = scale · q·k has a gradient.
  expect_near(c.dq, {0.5 * 2 * 3, 0.5 * 2 * -1});
  expect_near(c.dk, {0.5 * 2 * 1, 0.5 * 2 * 2});
}

TEST(Reference, TwoKeys_WeightsAreOneAndThreeQuarters) {
  const double ln3 = std::log(3.0);
  Case c(1, 1, 1, 1, 2, 1, 1);
  c.q = {static_cast<float>(ln3)};
  c.k = {0, 1};
  c.v = {8, 4};
  c.forward();
  expect_near(c.o, {0.25 * 8 + 0.75 * 4});
  expect_near(c.lse, {std::log(4.0)});
  c.dout = {2};
  c.backward();
  // dP = (16, 8), δ = 10, dS = (0.25 · 6, 0.75 · −2).
  expect_near(c.dv, {0.5, 1.5}, 4e-7);
  expect_near(c.dk, {1.5 * ln3, -1.5 * ln3}, 4e-7);
  expect_near(c.dq, {-1.5}, 4e-7);
}

TEST(Reference, Softcap_BoundsTheScore) {
  Case c(1, 1, 1, 1, 1, 1, 1);
  c.p.softcap = 2;
  c.q = {3};
  c.k = {1};
  c.v = {1};
  c.dlse = {1};
  c.forward();
  c.backward();
  const double t = std::tanh(1.5);
  expect_near(c.lse, {2 * t});
  expect_near(c.dq, {(1 - t * t) * 1});
  expect_near(c.dk, {(1 - t * t) * 3});
}

// With q = 0 every visible key weighs the same: LSE is the log of their number, O their mean value.
void expect_visible(Case& c, const std::vector<std::pair<int, int>>& ranges) {
  for (size_t j = 0; j < c.v.size(); ++j) c.v[j] = static_cast<float>(j * j);
  c.forward();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto [lo, hi] = ranges[i];
    double mean = 0;
    for (int j = lo; j < hi; ++j) mean += j * j / static_cast<double>(hi - lo);
    EXPECT_NEAR(c.o[i], mean, 1e-5) << "query " << i;
    if (hi > lo)
      EXPECT_NEAR(c.lse[i], std::log(hi - lo), 1e-6) << "query " << i;
    else
      EXPECT_EQ(c.lse[i], -kInf) << "query " << i;
  }
}

TEST(Reference, Causal_BottomRightAligned) {
  Case more_keys(1, 1, 1, 3, 5, 1, 1);
  more_keys.p.mask = FA3_MASK_CAUSAL;
  expect_visible(more_keys, {{0, 3}, {0, 4}, {0, 5}});
  Case more_queries(1, 1, 1, 5, 3, 1, 1);
  more_queries.p.mask = FA3_MASK_CAUSAL;
  expect_visible(more_queries, {{0, 0}, {0, 0}, {0, 1}, {0, 2}, {0, 3}});
}

TEST(Reference, Window_BothEndsIncluded) {
  Case c(1, 1, 1, 4, 6, 1, 1);  // query i is at key i + 2
  c.p.mask = FA3_MASK_WINDOW;
  c.p.left = 1;
  c.p.right = 1;
  expect_visible(c, {{1, 4}, {2, 5}, {3, 6}, {4, 6}});
  c.p.left = 0;
  c.p.right = 0;
  expect_visible(c, {{2, 3}, {3, 4}, {4, 5}, {5, 6}});
  c.p.left = -1;
  c.p.right = 0;
  expect_visible(c, {{0, 3}, {0, 4}, {0, 5}, {0, 6}});
  c.p.left = 2;
  c.p.right = -1;
  expect_visible(c, {{0, 6}, {1, 6}, {2, 6}, {3, 6}});
  c.p.left = std::numeric_limits<int64_t>::max();
  c.p.right = std::numeric_limits<int64_t>::max();
  expect_visible(c, {{0, 6}, {0, 6}, {0, 6}, {0, 6}});
}

TEST(Reference, Window_BeforeTheFirstKeySeesNothing) {
  Case c(1, 1, 1, 6, 3, 1, 1);  // query i is at key i − 3
  c.p.mask = FA3_MASK_WINDOW;
  c.p.left = 0;
  c.p.right = 1;
  expect_visible(c, {{0, 0}, {0, 0}, {0, 1}, {0, 2}, {1, 3}, {2, 3}});
}

TEST(Reference, GroupedHeads_ReadTheirKvHead) {
  Case c(1, 6, 2, 1, 1, 1, 1);
  c.v = {10, 20};
  c.forward();
  expect_near(c.o, {10, 10, 10, 20, 20, 20});
  c.dout = {1, 2, 3, 4, 5, 6};
  c.backward();
  expect_near(c.dv, {6, 15});
}

TEST(Reference, Varlen_SequencesDoNotMeet) {
  Case c(1, 1, 1, 1, 1, 1, 1);
  // Sequences of 1, 0 and 2 queries against 2, 1 and 1 keys; one spare row on both sides.
  c.pack({0, 1, 1, 3}, 4, {0, 2, 3, 4}, 5);
  c.v = {1, 3, 100, 7, kNan};
  c.k[4] = kNan;
  c.q[3] = kNan;
  c.forward();
  expect_near(c.o, {2, 7, 7, 0});
  expect_near({c.lse[0], c.lse[1], c.lse[2]}, {std::log(2.0), 0, 0});
  EXPECT_EQ(c.lse[3], -kInf);
  c.dout = {4, 1, 2, kNan};
  c.dlse[3] = kNan;
  c.backward();
  expect_near(c.dv, {2, 2, 0, 3, 0});
  expect_near(c.dq, {0, 0, 0, 0});
  expect_near(c.dk, {0, 0, 0, 0, 0});
}

TEST(Reference, Seqused_RowsBeyondAreEmptyAndUnread) {
  Case c(2, 1, 1, 3, 3, 1, 1);
  c.used_q = {2, 3};
  c.used_kv = {3, 1};
  c.v = {1, 2, 6, 5, kNan, kInf};
  c.k[4] = kNan;
  c.q[2] = kNan;
  c.forward();
  expect_near(c.o, {3, 3, 0, 5, 5, 5});
  EXPECT_EQ(c.lse[2], -kInf);
  EXPECT_EQ(c.lse[3], 0);
  c.dout = {1, 2, kNan, 1, 1, 1};
  c.backward();
  expect_near(c.dv, {1, 1, 1, 3, 0, 0});
  expect_near(c.dq, {0, 0, 0, 0, 0, 0});
}

TEST(Reference, NoKeys_EmptyRows) {
  Case c(2, 2, 1, 3, 0, 4, 4);
  c.randomise(1);
  c.forward();
  for (const float x : c.o) EXPECT_EQ(x, 0);
  for (const float x : c.lse) EXPECT_EQ(x, -kInf);
  c.backward();
  for (const float x : c.dq) EXPECT_EQ(x, 0);
}

// ---- NaN and Inf -----------------------------------------------------------------------------

TEST(ReferenceNan, InKey_ReachesTheRowsThatSeeItOnly) {
  Case c(1, 1, 1, 3, 3, 2, 2);
  c.p.mask = FA3_MASK_CAUSAL;
  c.randomise(2);
  c.k[2 * 2] = kNan;  // key 2: only query 2 sees it
  c.forward();
  c.backward();
  for (int e = 0; e < 4; ++e) EXPECT_TRUE(std::isfinite(c.o[e]) && std::isfinite(c.dq[e])) << e;
  for (int e = 4; e < 6; ++e) EXPECT_TRUE(std::isnan(c.o[e]) && std::isnan(c.dq[e])) << e;
  EXPECT_TRUE(std::isfinite(c.lse[1]));
  EXPECT_TRUE(std::isnan(c.lse[2]));
  for (const float x : c.dk) EXPECT_TRUE(std::isnan(x));  // query 2 sees all keys
}

TEST(ReferenceNan, HiddenValue_NeverReachesARow) {
  for (const float bad : {kNan, kInf}) {
    Case c(1, 1, 1, 3, 4, 2, 2);
    c.p.mask = FA3_MASK_WINDOW;
    c.p.left = 0;
    c.p.right = 0;  // query i sees key i + 1: none sees key 0
    c.randomise(3);
    c.k[0] = c.v[0] = c.v[1] = bad;
    c.forward();
    c.backward();
    for (const auto* tensor : {&c.o, &c.lse, &c.dq, &c.dk, &c.dv})
      for (const float x : *tensor) EXPECT_TRUE(std::isfinite(x));
    EXPECT_EQ(c.dv[0], 0);
  }
}

TEST(ReferenceNan, InfInValue_ReachesItsColumn) {
  Case c(1, 1, 1, 1, 2, 1, 2);
  c.v = {1, kInf, 2, 3};
  c.forward();
  EXPECT_EQ(c.o[0], 1.5);
  EXPECT_EQ(c.o[1], kInf);
}

TEST(ReferenceNan, AllScoresMinusInf_OutputNanLseMinusInf) {
  Case c(1, 1, 1, 1, 2, 1, 1);
  c.q = {1};
  c.k = {-kInf, -kInf};
  c.v = {1, 2};
  c.forward();
  EXPECT_TRUE(std::isnan(c.o[0]));
  EXPECT_EQ(c.lse[0], -kInf);
}

TEST(ReferenceNan, SomeScoresMinusInf_CountAsZero) {
  Case c(1, 1, 1, 1, 2, 1, 1);
  c.q = {1};
  c.k = {-kInf, 2};
  c.v = {1, 5};
  c.forward();
  EXPECT_EQ(c.o[0], 5);
  EXPECT_EQ(c.lse[0], 2);
}

TEST(ReferenceNan, ScorePlusInf_RowIsNan) {
  Case c(1, 1, 1, 1, 2, 1, 1);
  c.q = {1};
  c.k = {kInf, 2};
  c.forward();
  EXPECT_TRUE(std::isnan(c.o[0]));
  EXPECT_TRUE(std::isnan(c.lse[0]));
}

TEST(ReferenceNan, EmptyRow_GradientZeroWhateverDout) {
  Case c(1, 1, 1, 2, 1, 1, 1);
  c.p.mask = FA3_MASK_CAUSAL;  // query 0 sees nothing
  c.randomise(4);
  c.dout[0] = kNan;
  c.dlse[0] = kInf;
  c.backward();
  EXPECT_EQ(c.dq[0], 0);
  for (const auto* tensor : {&c.dq, &c.dk, &c.dv})
    for (const float x : *tensor) EXPECT_TRUE(std::isfinite(x));
}

// ---- Gradients -------------------------------------------------------------------------------

TEST(ReferenceGradient, Full_MatchesFiniteDifferences) {
  Case c(2, 2, 2, 3, 5, 4, 3);
  c.p.softmax_scale = 0.5;
  check_gradients(c, 11);
}

TEST(ReferenceGradient, CausalGrouped_MatchesFiniteDifferences) {
  Case c(1, 4, 2, 4, 6, 3, 5);
  c.p.mask = FA3_MASK_CAUSAL;
  c.p.softmax_scale = 0.6;
  check_gradients(c, 12);
}

TEST(ReferenceGradient, CausalMoreQueriesThanKeys_MatchesFiniteDifferences) {
  Case c(1, 1, 1, 7, 4, 3, 2);
  c.p.mask = FA3_MASK_CAUSAL;
  check_gradients(c, 13);
}

TEST(ReferenceGradient, SoftcapWindow_MatchesFiniteDifferences) {
  Case c(1, 2, 1, 6, 7, 3, 3);
  c.p.mask = FA3_MASK_WINDOW;
  c.p.left = 2;
  c.p.right = 1;
  c.p.softcap = 1.5;
  check_gradients(c, 14);
}

TEST(ReferenceGradient, VarlenSeqused_MatchesFiniteDifferences) {
  Case c(1, 2, 1, 1, 1, 3, 2);
  c.pack({0, 3, 3, 7}, 8, {0, 4, 6, 9}, 10);
  c.used_q = {2, 0, 4};
  c.used_kv = {4, 1, 2};
  c.p.softmax_scale = 0.7;
  check_gradients(c, 15);
}

TEST(ReferenceGradient, MoreRowsThanABlock_MatchesFiniteDifferences) {
  Case c(1, 1, 1, 35, 9, 2, 2);
  c.p.mask = FA3_MASK_WINDOW;
  c.p.left = 30;
  c.p.right = 0;
  check_gradients(c, 16);
}

// ---- Types, threads --------------------------------------------------------------------------

TEST(Reference, ThreadCount_ChangesNoBit) {
  Case one(3, 4, 2, 20, 17, 8, 8);
  one.randomise(21);
  Case many = one;
  one.forward();
  one.backward();
  many.run(FA3_OP_FORWARD, 5);
  many.run(FA3_OP_BACKWARD, 5);
  EXPECT_EQ(one.o, many.o);
  EXPECT_EQ(one.lse, many.lse);
  EXPECT_EQ(one.dq, many.dq);
  EXPECT_EQ(one.dk, many.dk);
  EXPECT_EQ(one.dv, many.dv);
}

TEST(Reference, SixteenBitOutput_IsRoundedOnce) {
  // O = (1 + 3 · x) / 4 with weights 1/4 and 3/4 is rounded from FP64 to BF16 in one step.
  Case c(1, 1, 1, 1, 2, 1, 1);
  c.forward();
  std::vector<Bf16> v{from_double<Bf16>(1), from_double<Bf16>(1.0078125)}, q{{0}}, k{{0}, {0}};
  std::vector<Bf16> o{{0xffff}};
  for (const TensorId id : {kQ, kK, kV, kO}) c.p.layout[id].dtype = FA3_BF16;
  c.p.layout[kLse] = {};
  c.p.op = FA3_OP_FORWARD;
  Buffers x;
  x.data[kQ] = q.data();
  x.data[kK] = k.data();
  x.data[kV] = v.data();
  x.data[kO] = o.data();
  std::vector<std::byte> workspace(reference::workspace_bytes(c.p, 1));
  reference::forward(c.p, x, workspace.data(), Executor(1));
  EXPECT_EQ(to_float(o[0]), 1);  // 1.00390625 lies halfway: to even
}

}  // namespace
}  // namespace fa3
