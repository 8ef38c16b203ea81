// SPDX-License-Identifier: BSD-3-Clause
// terms_test.cpp — ALiBi and sequence ids on the cpu backend, forward and backward.
#include <cmath>
#include <limits>

#include "tests/kit/context.h"
#include "tests/kit/run.h"
#include "tests/kit/thorough.h"

namespace fa3 {
namespace {

using kit::expect_right;
using verify::Config;
using verify::Index;
using verify::Tensors;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class CpuTerms : public ::testing::TestWithParam<int32_t> {
 protected:
  Config config(int64_t q, int64_t kv) const {
    Config c;
    c.dtype = GetParam();
    c.backward = true;
    c.dlse = true;
    c.heads_q = 4;
    c.heads_kv = 2;
    c.head_dim_qk = c.head_dim_v = 24;
    c.seqlen_q = q;
    c.seqlen_kv = kv;
    return c;
  }

  // Slopes, ids in order and ids in none, each alone and the last with slopes.
  static void expect_right_with_terms(Config c) {
    c.alibi = true;
    expect_right(c);
    c.alibi = false;
    for (const int64_t documents : {1, 3, 20}) {
      c.sequence_ids = documents;
      c.scattered_ids = false;
      expect_right(c);
      c.scattered_ids = true;
      c.alibi = !c.alibi;
      expect_right(c);
    }
  }
};

TEST_P(CpuTerms, MasksAndLengths) {
  for (const auto& [q, kv] : {std::pair(70, 70), {33, 200}, {200, 33}, {1, 90}, {400, 700}}) {
    if ((kv == 700 && GetParam() != FA3_F32) != kit::thorough()) continue;
    Config c = config(q, kv);
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
      c.mask = mask;
      c.left = mask == FA3_MASK_WINDOW ? 40 : 0;
      c.right = mask == FA3_MASK_WINDOW ? 5 : 0;
      c.seed = static_cast<uint64_t>(q + mask);
      expect_right_with_terms(c);
    }
  }
}

TEST_P(CpuTerms, VarlenAndUsedRows) {
  const uint64_t seeds = kit::thorough() ? 4 : 1;
  Config c = config(1, 1);
  c.varlen_q = {40, 0, 7, 130};
  c.varlen_kv = {50, 9, 0, 300};
  c.spare_q = 3;
  c.spare_kv = 5;
  c.mask = FA3_MASK_CAUSAL;
  for (c.seed = 0; c.seed < seeds; ++c.seed) expect_right_with_terms(c);
  c.seqused_q = {33, 0, 7, 100};
  c.seqused_kv = {50, 4, 0, 210};
  for (c.seed = 0; c.seed < seeds; ++c.seed) expect_right_with_terms(c);
  c.varlen_q = {};  // dense queries of varlen keys
  c.seqlen_q = 60;
  c.seqused_q = {};
  expect_right_with_terms(c);
}

TEST_P(CpuTerms, SoftcapAndScales) {
  Config c = config(100, 150);
  c.softcap = 3;
  expect_right_with_terms(c);
  c.softmax_scale = -0.4;
  expect_right_with_terms(c);
  c.softcap = 0;
  expect_right_with_terms(c);
  c.softmax_scale = 1e-30;  // the bias is all there is
  expect_right_with_terms(c);
  c.softmax_scale = 1;
  c.magnitude = 6;
  expect_right_with_terms(c);
}

// Few query rows: K and V are read in place, keys are split.
TEST_P(CpuTerms, Decode) {
  for (const int64_t q : {1, 2, 3}) {
    Config c = config(q, 3000);
    c.backward = c.dlse = false;
    c.batch = 2;
    c.heads_kv = 1;
    c.mask = FA3_MASK_CAUSAL;
    c.seed = static_cast<uint64_t>(q);
    expect_right_with_terms(c);
    c.seqused_kv = {2999, 17};
    expect_right_with_terms(c);
  }
}

TEST_P(CpuTerms, Layouts) {
  for (const auto layout : {verify::Layout::kPadded, verify::Layout::kHeadsFirst,
                            verify::Layout::kInterleaved, verify::Layout::kBroadcast}) {
    Config c = config(65, 65);
    c.batch = 3;
    c.layout = layout;
    c.seed = 2;  // slopes of each batch entry
    expect_right_with_terms(c);
  }
}

// One document is none at all: the same tiles, spans and sums.
TEST_P(CpuTerms, EqualIds_ChangeNoBit) {
  const kit::Context context = kit::make_context();
  for (const auto& [q, kv] : {std::pair(300, 700), {2, 3000}}) {
    Config c = config(q, kv);
    c.backward = q > 2;
    const kit::OutputBits without = kit::output_bits(c, context.get());
    c.sequence_ids = 1;
    EXPECT_TRUE(kit::output_bits(c, context.get()) == without);
  }
}

// ---- Single numbers ----------------------------------------------------------------------------

void expect_right(const Config& c, const Tensors& t) {
  const kit::Context context = kit::make_context();
  const fa3_forward_args forward = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_forward(forward))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
  if (!c.backward) return;
  const fa3_backward_args backward = verify::backward_args(c, t);
  ASSERT_EQ(fa3_backward(context.get(), &backward, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_backward(backward))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
}

TEST_P(CpuTerms, Slopes_OfAnySign) {
  for (const double slope : {0.0, -0.0, -0.05, -2.0, 1e-30, 40.0, 3e4}) {
    Config c = config(90, 130);
    c.alibi = true;
    const Tensors t = verify::make_tensors(c);
    verify::set(t.alibi_slopes.view, {1}, slope);
    expect_right(c, t);
  }
}

TEST_P(CpuTerms, Slopes_InfAndNanFollowArithmetic) {
  for (const double slope : {kInf, -kInf, kNan}) {
    for (const int64_t q : {1, 50}) {
      Config c = config(q, 70);
      c.alibi = true;
      c.mask = FA3_MASK_WINDOW;
      c.left = 30;
      c.right = -1;
      const Tensors t = verify::make_tensors(c);
      verify::set(t.alibi_slopes.view, {2}, slope);
      expect_right(c, t);
    }
  }
}

// The greatest finite slope: 0 at distance 0, not Inf times 0, so the last key takes all. Bounds
// from the size of its biases would be meaningless.
TEST_P(CpuTerms, Slopes_GreatestFinite) {
  const kit::Context context = kit::make_context();
  Config c = config(1, 2);
  c.alibi = true;
  const Tensors t = verify::make_tensors(c);
  verify::set(t.alibi_slopes.view, {0}, std::numeric_limits<float>::max());
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  for (int64_t d = 0; d < c.head_dim_v; ++d) {
    const double value = verify::get(t.v.view, {0, 1, 0, d});
    EXPECT_NEAR(verify::get(t.o.view, {0, 0, 0, d}), value, 0x1p-22 * std::abs(value));
  }
}

TEST_P(CpuTerms, Ids_OfAnyValue) {
  constexpr int32_t kValues[] = {INT32_MIN, -1, 0, INT32_MAX};
  Config c = config(40, 60);
  c.sequence_ids = 4;
  c.scattered_ids = true;
  const Tensors t = verify::make_tensors(c);
  for (const fa3_tensor* ids : {&t.sequence_ids_q.view, &t.sequence_ids_kv.view}) {
    for (int64_t i = 0; i < ids->shape[1]; ++i) {
      const auto id = static_cast<int64_t>(verify::get(*ids, {0, i}));
      verify::set(*ids, {0, i}, id < 4 ? kValues[id] : 77);
    }
  }
  expect_right(c, t);
}

// Rows that see nothing are empty, all of them and some.
TEST_P(CpuTerms, Ids_NoKeyOfAny) {
  for (const int64_t q : {1, 70}) {
    Config c = config(q, 600);
    c.sequence_ids = 3;
    const Tensors t = verify::make_tensors(c);
    verify::fill(t.sequence_ids_q.view, 9);
    if (q > 1) verify::set(t.sequence_ids_q.view, {0, 30}, 1);
    expect_right(c, t);
    EXPECT_EQ(verify::get(t.o.view, {0, 0, 0, 0}), 0);
    EXPECT_EQ(verify::get(t.lse.view, {0, 0, 0}), -kInf);
    EXPECT_EQ(verify::get(t.dq.view, {0, 0, 0, 0}), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuTerms, ::testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         [](const auto& info) { return verify::dtype_text(info.param); });

}  // namespace
}  // namespace fa3
