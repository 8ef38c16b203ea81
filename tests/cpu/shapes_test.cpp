// SPDX-License-Identifier: BSD-3-Clause
// shapes_test.cpp — the cpu backend over the shapes that tiles make awkward.
#include "tests/kit/context.h"

namespace fa3 {
namespace {

using kit::expect_right;
using verify::Config;
using verify::Layout;

constexpr int32_t kTypes[] = {FA3_F32, FA3_F16, FA3_BF16};

// Lengths around the tiles of the kernels: 6 rows, 16 lanes, 64 keys of a panel, 192 and 144
// queries, 512 and 576 keys of a block.
constexpr int64_t kEdges[] = {1, 2, 5, 6, 7, 15, 16, 17, 63, 64, 65, 143, 144, 145, 191, 192, 193};
constexpr int64_t kLongEdges[] = {511, 512, 513, 575, 576, 577};

void expect_right_both_ways(Config c) {
  c.backward = false;
  expect_right(c);
  c.backward = true;
  c.dlse = true;
  expect_right(c);
}

class CpuShapes : public ::testing::TestWithParam<int32_t> {
 protected:
  Config config() const {
    Config c;
    c.dtype = GetParam();
    c.head_dim_qk = c.head_dim_v = 32;
    return c;
  }
};

TEST_P(CpuShapes, QueryLengths_AtTileEdges) {
  for (const int64_t n : kEdges) {
    Config c = config();
    c.seqlen_q = n;
    c.seqlen_kv = 70;
    c.mask = n % 2 == 0 ? FA3_MASK_CAUSAL : FA3_MASK_FULL;
    c.seed = n;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, KeyLengths_AtTileEdges) {
  for (const int64_t n : kEdges) {
    Config c = config();
    c.seqlen_q = 13;
    c.seqlen_kv = n;
    c.mask = n % 2 == 0 ? FA3_MASK_FULL : FA3_MASK_CAUSAL;
    c.seed = n;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, LongLengths_AtTileEdges) {
  for (const int64_t n : kLongEdges) {
    Config c = config();
    c.head_dim_qk = c.head_dim_v = 16;
    c.seqlen_q = 19;
    c.seqlen_kv = n;
    c.seed = n;
    expect_right_both_ways(c);
    std::swap(c.seqlen_q, c.seqlen_kv);
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, CausalSquares_AtTileEdges) {
  for (const int64_t n : {1, 6, 7, 64, 65, 145, 193, 300}) {
    Config c = config();
    c.seqlen_q = c.seqlen_kv = n;
    c.mask = FA3_MASK_CAUSAL;
    c.seed = n;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, CausalUnequalLengths_BothWays) {
  for (const auto& [q, kv] : {std::pair{1, 40}, {40, 1}, {7, 200}, {200, 7}, {64, 65}, {65, 64}}) {
    Config c = config();
    c.seqlen_q = q;
    c.seqlen_kv = kv;
    c.mask = FA3_MASK_CAUSAL;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, Windows_OfAllKinds) {
  const std::pair<int, int> windows[] = {{0, 0},  {1, 0},  {0, 1},  {5, 5},    {63, 0},  {64, 1},
                                         {-1, 0}, {0, -1}, {-1, 3}, {100, -1}, {-1, -1}, {7, 500}};
  for (const auto& [left, right] : windows) {
    for (const auto& [q, kv] : {std::pair{150, 150}, {33, 140}, {140, 33}}) {
      Config c = config();
      c.head_dim_qk = c.head_dim_v = 16;
      c.seqlen_q = q;
      c.seqlen_kv = kv;
      c.mask = FA3_MASK_WINDOW;
      c.left = left;
      c.right = right;
      expect_right_both_ways(c);
    }
  }
}

TEST_P(CpuShapes, HeadDims_FromOneTo512) {
  for (const int64_t d : {1,  2,  3,  7,   8,   15,  16,  17,  24,  33,  40,  48,  63,  64, 65,
                          72, 80, 96, 112, 127, 128, 129, 160, 192, 256, 257, 384, 511, 512}) {
    Config c = config();
    c.seqlen_q = 9;
    c.seqlen_kv = 21;
    c.head_dim_qk = c.head_dim_v = d;
    c.seed = d;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, HeadDims_QkAndVDiffer) {
  for (const auto& [qk, v] :
       {std::pair{192, 128}, {64, 512}, {512, 64}, {1, 17}, {17, 1}, {576 - 64, 3}}) {
    Config c = config();
    c.heads_q = 2;
    c.seqlen_q = 20;
    c.seqlen_kv = 67;
    c.head_dim_qk = qk;
    c.head_dim_v = v;
    c.mask = FA3_MASK_CAUSAL;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, GroupSizes_ThatDoNotDivideTiles) {
  for (const int64_t group : {1, 2, 3, 5, 7, 8, 11, 16}) {
    Config c = config();
    c.batch = 2;
    c.heads_kv = 2;
    c.heads_q = 2 * group;
    c.seqlen_q = 5;
    c.seqlen_kv = 37;
    c.mask = FA3_MASK_CAUSAL;
    expect_right_both_ways(c);
    c.seqlen_q = 35;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, Decode_FewQueriesManyKeys) {
  for (const int64_t q : {1, 2, 3, 5, 8}) {
    for (const int64_t kv : {1, 700, 3000, 5121}) {
      Config c = config();
      c.batch = q == 1 ? 2 : 1;
      c.heads_q = 4;
      c.heads_kv = q % 2 == 0 ? 4 : 1;
      c.head_dim_qk = c.head_dim_v = 64;
      c.seqlen_q = q;
      c.seqlen_kv = kv;
      c.mask = q == 5 ? FA3_MASK_FULL : FA3_MASK_CAUSAL;
      c.seed = kv;
      expect_right(c);
    }
  }
}

TEST_P(CpuShapes, DecodeWindow_SkipsSplitsWithoutKeys) {
  Config c = config();
  c.heads_q = 2;
  c.seqlen_q = 2;
  c.seqlen_kv = 6000;
  c.mask = FA3_MASK_WINDOW;
  c.left = 100;
  c.right = 0;
  expect_right(c);
  c.left = 4500;
  c.right = 3;
  expect_right(c);
}

TEST_P(CpuShapes, DecodeUnequalCaches_EachSequenceItsOwnSplits) {
  Config c = config();
  c.heads_q = 6;
  c.heads_kv = 2;
  c.varlen_q = {1, 1, 0, 2};
  c.varlen_kv = {4000, 1, 17, 1500};
  c.mask = FA3_MASK_CAUSAL;
  expect_right(c);
  c.varlen_q = {};
  c.varlen_kv = {};
  c.batch = 3;
  c.seqlen_kv = 2500;
  c.seqused_kv = {2500, 0, 1025};
  expect_right(c);
}

TEST_P(CpuShapes, Varlen_EmptySequencesAnywhere) {
  Config c = config();
  c.heads_q = 4;
  c.heads_kv = 2;
  c.mask = FA3_MASK_CAUSAL;
  for (const auto& lengths : std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{
           {{0, 5, 0, 64, 0}, {3, 0, 0, 65, 7}},
           {{0}, {0}},
           {{0, 0}, {4, 5}},
           {{4, 5}, {0, 0}},
           {{193, 1, 7}, {1, 193, 600}}}) {
    c.varlen_q = lengths.first;
    c.varlen_kv = lengths.second;
    c.spare_q = 2;
    c.spare_kv = 3;
    for (const uint64_t seed : {0, 1}) {  // with max_seqlen and without
      c.seed = seed;
      expect_right_both_ways(c);
    }
  }
}

TEST_P(CpuShapes, Varlen_OneSideDense) {
  Config c = config();
  c.heads_q = 2;
  c.varlen_q = {3, 0, 20};
  c.seqlen_kv = 31;
  c.mask = FA3_MASK_CAUSAL;
  expect_right_both_ways(c);
  c.varlen_kv = c.varlen_q;
  c.varlen_q = {};
  c.seqlen_q = 17;
  expect_right_both_ways(c);
}

TEST_P(CpuShapes, Seqused_CutsDenseAndVarlen) {
  Config c = config();
  c.batch = 3;
  c.heads_q = 2;
  c.seqlen_q = 40;
  c.seqlen_kv = 90;
  c.seqused_q = {40, 0, 7};
  c.seqused_kv = {1, 90, 64};
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    c.mask = mask;
    expect_right_both_ways(c);
  }
  c.varlen_q = {12, 5, 0};
  c.varlen_kv = {30, 6, 9};
  c.seqused_q = {3, 5, 0};
  c.seqused_kv = {30, 0, 2};
  expect_right_both_ways(c);
}

TEST_P(CpuShapes, Layouts_OfAllKinds) {
  for (const Layout layout : {Layout::kDense, Layout::kHeadsFirst, Layout::kSeqFirst,
                              Layout::kPadded, Layout::kInterleaved, Layout::kBroadcast}) {
    Config c = config();
    c.batch = 2;
    c.heads_q = 4;
    c.heads_kv = 2;
    c.head_dim_qk = c.head_dim_v = 24;
    c.seqlen_q = c.seqlen_kv = 77;
    c.mask = FA3_MASK_CAUSAL;
    c.layout = layout;
    expect_right_both_ways(c);
    if (layout == Layout::kBroadcast) continue;
    c.varlen_q = c.varlen_kv = {30, 0, 41};
    c.spare_q = c.spare_kv = 1;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, F32Outputs_OfAnyInput) {
  Config c = config();
  c.out_dtype = FA3_F32;
  c.heads_q = 3;
  c.seqlen_q = 50;
  c.seqlen_kv = 70;
  for (const Layout layout : {Layout::kDense, Layout::kPadded}) {
    c.layout = layout;
    expect_right_both_ways(c);
  }
}

TEST_P(CpuShapes, ScalesAndSoftcaps) {
  for (const double scale : {0.0, 1.0, -0.5, 1e-4, 3.0}) {
    for (const double softcap : {0.0, 0.3, 8.0, 50.0}) {
      Config c = config();
      c.seqlen_q = 21;
      c.seqlen_kv = 66;
      c.softmax_scale = scale;
      c.softcap = softcap;
      c.mask = FA3_MASK_CAUSAL;
      expect_right_both_ways(c);
    }
  }
}

TEST_P(CpuShapes, LargeScores_OneKeyTakesAll) {
  for (const double magnitude : {20.0, 300.0}) {
    Config c = config();
    c.seqlen_q = 40;
    c.seqlen_kv = 600;
    c.magnitude = magnitude;
    expect_right_both_ways(c);
    c.mask = FA3_MASK_CAUSAL;
    expect_right_both_ways(c);
  }
}

// Keys compete at scores of ±60, where FP32 resolves 10^-5: the errors of P reach dK through
// δ = Σ P·dP, which a bound has to know.
TEST(CpuBackward, LargeScores_KeysThatCompete) {
  Config c;
  c.heads_q = 2;
  c.heads_kv = 1;
  c.head_dim_qk = c.head_dim_v = 512;
  c.varlen_q = {22, 10};
  c.varlen_kv = {33, 33};
  c.spare_q = 5;
  c.layout = verify::Layout::kSeqFirst;
  c.seqused_q = {0, 5};
  c.mask = FA3_MASK_CAUSAL;
  c.softmax_scale = 1;
  c.seed = 495;
  c.backward = true;
  expect_right(c);
}

// max·scale rounds by more than 1 here: P must not become Inf by that, nor LSE NaN.
TEST_P(CpuShapes, HugeScores_StayFinite) {
  const bool f16 = GetParam() == FA3_F16;
  for (const double magnitude : {f16 ? 3e3 : 1e5, f16 ? 2e4 : 1e9, f16 ? 2e4 : 1e15}) {
    for (const int64_t seqlen_q : {1, 70}) {
      Config c = config();
      c.heads_q = 2;
      c.heads_kv = 1;
      c.seqlen_q = seqlen_q;
      c.seqlen_kv = 300;
      c.magnitude = magnitude;
      expect_right_both_ways(c);
      c.mask = FA3_MASK_CAUSAL;
      c.softmax_scale = -0.3;
      expect_right_both_ways(c);
    }
  }
}

TEST_P(CpuShapes, NoLse_Forward) {
  Config c = config();
  c.lse = false;
  c.seqlen_q = 10;
  c.seqlen_kv = 20;
  expect_right(c);
}

TEST_P(CpuShapes, ZeroSizes_Succeed) {
  for (int which = 0; which < 5; ++which) {
    Config c = config();
    c.batch = which == 0 ? 0 : 2;
    c.heads_q = c.heads_kv = which == 1 ? 0 : 2;
    c.seqlen_q = which == 2 || which == 4 ? 0 : 3;
    c.seqlen_kv = which == 3 || which == 4 ? 0 : 3;
    expect_right_both_ways(c);
    c.mask = FA3_MASK_CAUSAL;
    expect_right_both_ways(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuShapes, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return verify::dtype_text(info.param); });

// Each gradient alone: what is absent must not be needed by the others.
TEST(CpuGradients, AnySubset_IsTheSame) {
  Config c;
  c.backward = true;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.seqlen_q = 30;
  c.seqlen_kv = 70;
  const kit::Context context = kit::make_context();
  const verify::Tensors all = verify::make_tensors(c);
  const fa3_forward_args forward = verify::forward_args(c, all);
  ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
  const fa3_backward_args args = verify::backward_args(c, all);
  ASSERT_EQ(fa3_backward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  const auto dq = kit::bytes_of(args.dq), dk = kit::bytes_of(args.dk), dv = kit::bytes_of(args.dv);
  for (int wanted = 0; wanted < 7; ++wanted) {
    fa3_backward_args some = args;
    for (fa3_tensor* t : {&some.dq, &some.dk, &some.dv})
      verify::fill(*t, std::numeric_limits<double>::quiet_NaN());
    if (!(wanted & 1)) some.dq = {};
    if (!(wanted & 2)) some.dk = {};
    if (!(wanted & 4)) some.dv = {};
    ASSERT_EQ(fa3_backward(context.get(), &some, nullptr), FA3_OK) << fa3_last_error();
    if (wanted & 1) {
      EXPECT_EQ(kit::bytes_of(some.dq), dq) << wanted;
    }
    if (wanted & 2) {
      EXPECT_EQ(kit::bytes_of(some.dk), dk) << wanted;
    }
    if (wanted & 4) {
      EXPECT_EQ(kit::bytes_of(some.dv), dv) << wanted;
    }
  }
}

}  // namespace
}  // namespace fa3
