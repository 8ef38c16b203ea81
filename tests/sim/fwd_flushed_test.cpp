// SPDX-License-Identifier: BSD-3-Clause
// fwd_flushed_test.cpp — P·V in E4M3, added up in FP32, in the forward kernel of Hopper in the
// simulator: for long sums, unless v_offset says that V has no mean, and for scales of blocks.
#include <fmt/core.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/kit/thorough.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using verify::Index;
using verify::Tensors;

// Each element of V becomes its size: columns have a mean.
void take_sizes(const fa3_tensor& v) {
  verify::for_each_row(v, [&](const Index& row, void*) {
    Index at = row;
    for (at[v.rank - 1] = 0; at[v.rank - 1] < v.shape[v.rank - 1]; ++at[v.rank - 1])
      verify::set(v, at, std::abs(verify::get(v, at)));
  });
}

// How much of O is missing on average, relative to `want`.
double missing(const fa3_tensor& o, const fa3_tensor& want) {
  double lost = 0, all = 0;
  verify::for_each_row(o, [&](const Index& row, void*) {
    Index at = row;
    for (at[o.rank - 1] = 0; at[o.rank - 1] < o.shape[o.rank - 1]; ++at[o.rank - 1]) {
      lost += verify::get(want, at) - verify::get(o, at);
      all += verify::get(want, at);
    }
  });
  return lost / all;
}

void set_zero(const fa3_tensor& offset) {
  verify::for_each_row(offset, [&](const Index& row, void*) {
    Index at = row;
    for (at[2] = 0; at[2] < offset.shape[2]; ++at[2]) verify::set(offset, at, 0);
  });
}

// Sanitized simulators have one head dim.
std::vector<int64_t> head_dims() {
  if (kit::kSanitized) return {64};
  return {64, 128, 192, 256};
}

class SimFwdFlushed : public testing::TestWithParam<int64_t> {
 protected:
  static verify::Config problem() {
    verify::Config c;
    c.dtype = FA3_F8_E4M3;
    c.out_dtype = FA3_F16;
    c.heads_q = c.heads_kv = 1;
    c.head_dim_qk = c.head_dim_v = GetParam();
    c.seqlen_q = 64;
    c.seqlen_kv = 4200;
    c.alignment = 16;
    c.magnitude = 0.1;  // each row sees all keys about alike
    return c;
  }
  // Of the simulated kernel, relative to the CPU backend, which sums in FP32.
  static double missing_with(verify::Config c, bool v_offset) {
    c.v_offset = v_offset;
    const kit::Context cpu = kit::make_context();
    const Tensors of_kernel = verify::make_tensors(c), exact = verify::make_tensors(c);
    for (const auto& [context, t] :
         {std::pair(simulator(), &of_kernel), std::pair(cpu.get(), &exact)}) {
      take_sizes(t->v.view);
      if (v_offset) set_zero(t->v_offset.view);
      const fa3_forward_args args = verify::forward_args(c, *t);
      EXPECT_EQ(fa3_forward(context, &args, nullptr), FA3_OK) << fa3_last_error();
    }
    return missing(of_kernel.o.view, exact.o.view);
  }
};

TEST_P(SimFwdFlushed, MeanOfV_Stays) {
  EXPECT_LT(std::abs(missing_with(problem(), false)), 1e-3);
  EXPECT_GT(missing_with(problem(), true), 5e-3);  // what it says is not in V is cut off
}

// With enough Q tiles for three consumers head dim 128 adds up 768 keys at a time: what these lose.
class SimFwdChunks : public SimFwdFlushed {};
// Where simulators have one head dim.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SimFwdChunks);

TEST_P(SimFwdChunks, MeanOfV_StaysButForThatOfAFewTiles) {
  verify::Config c = problem();
  c.heads_q = c.heads_kv = 3;
  c.seqlen_q = 192;
  const double missing = missing_with(c, false);
  EXPECT_LT(missing, 1.2e-2);
  EXPECT_LT(missing, 0.25 * missing_with(c, true));  // of 4200 keys
  EXPECT_GT(missing, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(HeadDims, SimFwdFlushed, testing::ValuesIn(head_dims()),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(HeadDims, SimFwdChunks,
                         testing::ValuesIn(kit::kSanitized ? std::vector<int64_t>{}
                                                           : std::vector<int64_t>{128}),
                         testing::PrintToStringParamName());

// Head dim, and whether Q and K are of INT8.
class SimFwdBlockScales : public testing::TestWithParam<std::tuple<int64_t, bool>> {};

TEST_P(SimFwdBlockScales, AreRight) {
  using Of = verify::Scales::Of;
  const auto [head_dim, integers] = GetParam();
  if (!kit::due(static_cast<size_t>(head_dim / 64 + (integers ? 1 : 0)), 2))
    GTEST_SKIP() << (kit::thorough() ? "of make test" : "of make ci");
  verify::Config c;
  c.dtype = integers ? FA3_I8 : FA3_F8_E4M3;
  c.out_dtype = FA3_BF16;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.seqlen_q = 70;
  c.seqlen_kv = 500;
  c.alignment = 16;
  c.v_offset = c.k_offset = true;
  c.k_scale = {Of::kBlocks, 128}, c.v_scale = {Of::kBlocks, 256};
  kit::expect_right(c, simulator());
  c.v_scale = {Of::kHeads};
  c.varlen_q = {30, 0, 66, 1};
  c.varlen_kv = {390, 4, 140, 0};
  c.mask = FA3_MASK_CAUSAL;
  kit::expect_right(c, simulator());
  c.v_scale = {Of::kBlocks, 128}, c.k_scale = {Of::kTensor};
  c.softcap = 3;
  kit::expect_right(c, simulator());
  if (head_dim != 64) return;  // the simulator has no others
  c.v_scale = {Of::kTokens}, c.k_scale = {Of::kBlocks, 48};
  kit::expect_right(c, simulator());
  c.v_scale = {Of::kBlocks, 7}, c.k_scale = {Of::kTokens};
  c.varlen_q = c.varlen_kv = {};
  c.softcap = 0;
  kit::expect_right(c, simulator());
}
INSTANTIATE_TEST_SUITE_P(HeadDims, SimFwdBlockScales,
                         testing::Combine(testing::ValuesIn(head_dims()), testing::Bool()));

// A key that a row does not see changes nothing there, however large its scale; and what a row sees
// may have scales of any size.
TEST(SimFwdTokenScales, HiddenKeysCountForNothing) {
  using Of = verify::Scales::Of;
  verify::Config c = causal();
  c.dtype = FA3_F8_E4M3;
  c.out_dtype = FA3_BF16;
  c.heads_q = c.heads_kv = 1;
  c.seqlen_q = c.seqlen_kv = 70;
  c.v_scale = {Of::kTokens};
  kit::expect_right(c, simulator());
  const auto o_with = [&](double first, double last) {
    Tensors t = verify::make_tensors(c);
    for (int64_t key = 0; key < 70; ++key) {
      const Index at = {0, 0, key};
      verify::set(t.v_scale.view, at, verify::get(t.v_scale.view, at) * (key < 69 ? first : last));
    }
    const fa3_forward_args args = verify::forward_args(c, t);
    EXPECT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    std::vector<double> o;
    for (int64_t row = 0; row < 69; ++row)
      for (int64_t column = 0; column < c.head_dim_v; ++column)
        o.push_back(verify::get(t.o.view, {0, row, 0, column}));
    return o;
  };
  const std::vector<double> plain = o_with(1, 1);
  EXPECT_EQ(o_with(1, 0x1p30), plain);
  EXPECT_EQ(o_with(1, 0x1p-60), plain);
  for (const double factor : {0x1p-100, 0x1p100}) {
    std::vector<double> o = o_with(factor, 1);
    for (double& x : o) x /= factor;
    EXPECT_EQ(o, plain) << factor;
  }
}

// Scales of q become those of the first head of each group, for all of it. Heads are the second
// dimension of every shape.
std::vector<float> take_scales_of_groups(fa3_tensor& scale, const verify::Config& c) {
  fa3_tensor fewer = scale;
  fewer.shape[1] = c.heads_kv;
  std::vector<float> values(static_cast<size_t>(verify::element_count(fewer)));
  fewer = fa3_dense(values.data(), FA3_F32, fewer.rank, fewer.shape);
  verify::for_each_row(fewer, [&](const Index& row, void*) {
    const int last = fewer.rank - 1;
    for (Index at = row; at[last] < fewer.shape[last]; ++at[last]) {
      Index from = at;
      from[1] *= c.heads_q / c.heads_kv;
      verify::set(fewer, at, verify::get(scale, from));
    }
  });
  scale = fewer;
  return values;
}

// Of rows of q, with those of the heads of a group in common; k_offset's kernel reads them, too.
TEST(SimFwdGroupScales, OfRows_AreRight) {
  using Of = verify::Scales::Of;
  for (const bool varlen : {false, true}) {
    for (const verify::Scales of_q : {verify::Scales{Of::kTokens}, {Of::kBlocks, 16}}) {
      verify::Config c;
      c.dtype = varlen ? FA3_F8_E4M3 : FA3_I8;
      c.out_dtype = FA3_BF16;
      c.heads_q = 6, c.heads_kv = 2, c.batch = 2;
      c.seqlen_q = 40, c.seqlen_kv = 100;
      if (varlen) c.varlen_q = {30, 33}, c.varlen_kv = {100, 70};
      c.alignment = 16;
      c.k_offset = true;
      c.q_scale = of_q;
      const verify::Tensors t = verify::make_tensors(c);
      fa3_forward_args args = verify::forward_args(c, t);
      const std::vector<float> of_groups = take_scales_of_groups(args.q_scale, c);
      ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
      for (const verify::OutputResult& r : verify::compare_forward(args))
        EXPECT_TRUE(r.ok) << verify::scales_text(of_q) << ' ' << varlen << ' '
                          << verify::to_text(r);
    }
  }
}

// Scales of blocks of columns, alone and with blocks of rows; of Q and K of E4M3 or INT8, V of E4M3
// or 16 bits. Those of head dim 64 in blocks of 64 are plain.
struct Columns {
  int64_t head_dim;
  fa3_dtype qk, v;
};
class SimFwdColumnScales : public testing::TestWithParam<Columns> {};

TEST_P(SimFwdColumnScales, AreRight) {
  using Of = verify::Scales::Of;
  const int64_t head_dim = GetParam().head_dim;
  const bool v8 = GetParam().v == FA3_F8_E4M3;
  if (kit::kSanitized && head_dim != 64) GTEST_SKIP() << "the simulator has one head dim";
  verify::Config c;
  c.dtype = GetParam().qk;
  if (!v8) c.v_dtype = GetParam().v;
  c.out_dtype = FA3_BF16;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.seqlen_q = 70;
  c.seqlen_kv = 210;
  c.alignment = 16;
  c.k_offset = true;
  const auto scales = [&](verify::Scales of_q, verify::Scales of_k, verify::Scales of_v) {
    c.q_scale = of_q, c.k_scale = of_k;
    if (v8) c.v_scale = of_v;
  };
  scales({Of::kBlocks, 1, 64}, {Of::kBlocks, 1, 64}, {Of::kBlocks, 1, 64});
  kit::expect_right(c, simulator());
  scales({Of::kHeads}, {Of::kBlocks, 0, 64}, {Of::kBlocks, 48, 64});
  c.varlen_q = {30, 0, 66, 1};
  c.varlen_kv = {190, 4, 70, 0};
  c.mask = FA3_MASK_CAUSAL;
  kit::expect_right(c, simulator());
  scales({Of::kBlocks, 100, 64}, {Of::kTokens}, {Of::kBlocks, 0, 64});
  kit::expect_right(c, simulator());
}

INSTANTIATE_TEST_SUITE_P(
    Rows, SimFwdColumnScales,
    testing::Values(Columns{64, FA3_F8_E4M3, FA3_F8_E4M3}, Columns{128, FA3_F8_E4M3, FA3_F8_E4M3},
                    Columns{128, FA3_I8, FA3_F8_E4M3}, Columns{128, FA3_I8, FA3_BF16},
                    Columns{256, FA3_F8_E4M3, FA3_F8_E4M3}),
    [](const auto& info) {
      return fmt::format("d{}_{}_{}", info.param.head_dim, info.param.qk == FA3_I8 ? "i8" : "e4m3",
                         info.param.v == FA3_BF16 ? "bf16" : "e4m3");
    });

TEST(SimFwdColumnScalesRefusals, WhatTheSimulatorLacks_IsNamed) {
  verify::Config c;
  c.dtype = FA3_F8_E4M3;
  c.out_dtype = FA3_BF16;
  c.head_dim_qk = c.head_dim_v = 64;
  c.alignment = 16;
  c.q_scale = {verify::Scales::Of::kBlocks, 0, 32};
  const std::string error = verify::check(c, simulator()).error;
  EXPECT_NE(error.find("q_block.cols=32"), std::string::npos) << error;
  EXPECT_NE(error.find("multiples of 64"), std::string::npos) << error;
}

}  // namespace
}  // namespace fa3
