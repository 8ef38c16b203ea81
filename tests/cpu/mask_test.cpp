// SPDX-License-Identifier: BSD-3-Clause
// mask_test.cpp — attn_mask, its gradient and top-left alignment on the cpu backend.
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

class CpuMask : public ::testing::TestWithParam<int32_t> {
 protected:
  Config config(int64_t q, int64_t kv, int32_t mask) const {
    Config c;
    c.dtype = GetParam();
    c.backward = true;
    c.dlse = true;
    c.batch = 2;
    c.heads_q = 4;
    c.heads_kv = 2;
    c.head_dim_qk = c.head_dim_v = 24;
    c.seqlen_q = q;
    c.seqlen_kv = kv;
    c.attn_mask = mask;
    c.dattn_mask = mask != FA3_BOOL;
    return c;
  }

  // Every type of mask, in one set of dimensions after another: seeds count on.
  void expect_right_with_masks(Config c) {
    constexpr const char* kDims[] = {"bhqk", "qk", "bk", "hq", "k", "q", "", "bqk"};
    for (const int32_t type : {int32_t{FA3_BOOL}, int32_t{FA3_F32}, GetParam()}) {
      c.attn_mask = type;
      c.dattn_mask = type != FA3_BOOL && c.backward;
      c.seed = next_seed_++;
      c.mask_dims = kDims[next_dims_++ % std::size(kDims)];
      expect_right(c);
    }
  }

  uint64_t next_seed_ = 1;
  size_t next_dims_ = 0;
};

TEST_P(CpuMask, DimensionsAndTypes) {
  for (const char* dims : {"bhqk", "qk", "bk", "hq", "k", "q", "", "bqk"}) {
    for (const int32_t type : {int32_t{FA3_BOOL}, int32_t{FA3_F32}, GetParam()}) {
      Config c = config(50, 70, type);
      c.mask_dims = dims;
      for (c.seed = 0; c.seed < 2; ++c.seed) expect_right(c);
    }
  }
}

TEST_P(CpuMask, WithMasksAndAlignments) {
  for (const auto& [q, kv] : {std::pair(70, 70), {33, 200}, {200, 33}, {1, 90}, {400, 700}}) {
    const bool later = kv != 200 && kv != 90 && GetParam() != FA3_F32;
    Config c = config(q, kv, FA3_BOOL);
    c.batch = 1;
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
      c.mask = mask;
      c.left = mask == FA3_MASK_WINDOW ? 40 : 0;
      c.right = mask == FA3_MASK_WINDOW ? 5 : 0;
      for (const bool top_left : {false, true}) {
        const bool long_rows = kv == 700 && (mask != FA3_MASK_CAUSAL || top_left);
        if ((later || long_rows) != kit::thorough()) continue;
        c.top_left = top_left;
        expect_right_with_masks(c);
      }
    }
  }
}

TEST_P(CpuMask, WithOtherTerms) {
  Config c = config(60, 90, FA3_BOOL);
  c.softcap = 3;
  expect_right_with_masks(c);
  c.alibi = true;
  expect_right_with_masks(c);
  c.softcap = 0;
  c.sequence_ids = 3;
  expect_right_with_masks(c);
  c.scattered_ids = true;
  c.alibi = false;
  expect_right_with_masks(c);
  c.sequence_ids = 0;
  c.scattered_ids = false;
  for (const double scale : {-0.4, 1e-30, 1.0}) {
    c.softmax_scale = scale;
    c.magnitude = scale == 1 ? 6 : 1;
    expect_right_with_masks(c);
  }
}

TEST_P(CpuMask, UsedRowsAndVarlenKeys) {
  Config c = config(60, 90, FA3_BOOL);
  c.seqused_q = {60, 17};
  c.seqused_kv = {41, 90};
  c.mask = FA3_MASK_CAUSAL;
  expect_right_with_masks(c);
  c.top_left = true;
  expect_right_with_masks(c);
  c.seqused_q = c.seqused_kv = {};
  c.varlen_kv = {0, 70};
  c.spare_kv = 3;
  expect_right_with_masks(c);
  expect_right_with_masks(c);
}

TEST_P(CpuMask, Layouts) {
  for (const auto layout : {verify::Layout::kPadded, verify::Layout::kHeadsFirst,
                            verify::Layout::kInterleaved, verify::Layout::kBroadcast}) {
    Config c = config(65, 65, FA3_BOOL);
    c.layout = layout;
    expect_right_with_masks(c);
  }
}

// Few query rows: K and V are read in place, keys are split.
TEST_P(CpuMask, Decode) {
  for (const int64_t q : {1, 2, 3}) {
    Config c = config(q, 3000, FA3_BOOL);
    c.backward = c.dlse = false;
    c.heads_kv = 1;
    c.mask = FA3_MASK_CAUSAL;
    expect_right_with_masks(c);
    c.sequence_ids = 2;
    expect_right_with_masks(c);
  }
}

TEST_P(CpuMask, TopLeft_WithoutAMaskTensor) {
  for (const auto& [q, kv] : {std::pair(50, 90), {90, 50}, {1, 40}}) {
    for (const bool alibi : {false, true}) {
      Config c = config(q, kv, 0);
      c.dattn_mask = false;
      c.top_left = true;
      c.alibi = alibi;
      c.mask = FA3_MASK_CAUSAL;
      expect_right(c);
      c.mask = FA3_MASK_WINDOW;
      c.left = 20;
      c.right = -1;
      expect_right(c);
      c.varlen_q = {q, 3};
      c.varlen_kv = {kv, 0};
      expect_right(c);
    }
  }
}

// Bits do not depend on the number of threads.
TEST_P(CpuMask, Threads_ChangeNoBit) {
  Config c = config(300, 500, FA3_F32);
  c.mask_dims = "qk";
  const kit::OutputBits one = kit::output_bits(c, kit::make_context(1).get());
  EXPECT_TRUE(kit::output_bits(c, kit::make_context(3).get()) == one);
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

// Rows that the mask hides wholly are empty, alone and all of them.
TEST_P(CpuMask, HiddenRows_AreEmpty) {
  for (const int64_t q : {1, 70}) {
    for (const int32_t type : {int32_t{FA3_BOOL}, int32_t{FA3_F32}, GetParam()}) {
      const double hides = type == FA3_BOOL ? 0 : -kInf;
      Config c = config(q, 600, type);
      const Tensors t = verify::make_tensors(c);
      verify::fill(t.attn_mask.view, hides);
      if (q > 1) verify::set(t.attn_mask.view, {0, 1, 30, 7}, type == FA3_BOOL ? 1 : 0.5);
      expect_right(c, t);
      EXPECT_EQ(verify::get(t.o.view, {0, 0, 0, 0}), 0);
      EXPECT_EQ(verify::get(t.lse.view, {0, 0, 0}), -kInf);
      EXPECT_EQ(verify::get(t.dq.view, {0, 0, 0, 0}), 0);
    }
  }
}

// What it hides has no influence, in whatever order hidden and visible keys come.
TEST_P(CpuMask, HiddenKeys_AreNotRead) {
  for (const int64_t q : {1, 3, 60}) {
    Config c = config(q, 150, FA3_BOOL);
    c.heads_kv = 1;
    c.mask_dims = "k";
    c.seed = 4;
    const Tensors t = verify::make_tensors(c);
    for (int64_t j = 0; j < c.seqlen_kv; ++j) {
      verify::set(t.attn_mask.view, {0, 0, 0, j}, j % 3 == 1 ? 0 : 200);
      for (int64_t b = 0; b < c.batch && j % 3 == 1; ++b) {
        verify::set(t.k.view, {b, j, 0, 3}, j % 2 == 0 ? kNan : kInf);
        verify::set(t.v.view, {b, j, 0, 5}, kNan);
      }
    }
    expect_right(c, t);
    EXPECT_TRUE(std::isfinite(verify::get(t.o.view, {0, 0, 0, 5})));
    EXPECT_TRUE(std::isfinite(verify::get(t.dq.view, {0, 0, 0, 3})));
  }
}

// NaN in a query or its gradient stays with the keys that it sees.
TEST_P(CpuMask, HiddenQueries_ReachNoKey) {
  Config c = config(60, 90, FA3_F32);
  c.mask_dims = "qk";
  c.seed = 6;
  const Tensors t = verify::make_tensors(c);
  for (int64_t j = 0; j < c.seqlen_kv; ++j)
    verify::set(t.attn_mask.view, {0, 0, 20, j}, j % 2 == 0 ? -kInf : 1);
  verify::set(t.q.view, {0, 20, 1, 2}, kNan);
  verify::set(t.dout.view, {1, 20, 0, 2}, kInf);
  expect_right(c, t);
}

TEST_P(CpuMask, NanAndInf_ReachTheirRow) {
  for (const double value : {kNan, kInf}) {
    for (const int64_t q : {1, 50}) {
      Config c = config(q, 70, FA3_F32);
      c.mask_dims = "hqk";
      c.seed = 2;
      const Tensors t = verify::make_tensors(c);
      verify::set(t.attn_mask.view, {0, 1, 0, 40}, value);
      expect_right(c, t);
      EXPECT_TRUE(std::isnan(verify::get(t.o.view, {0, 0, 1, 0})));
      EXPECT_FALSE(std::isnan(verify::get(t.o.view, {0, 0, 2, 0})));
    }
  }
}

// The least finite number, with which others hide keys: beside others it takes none, and a row of
// nothing else is the mean of its values, as everywhere.
TEST_P(CpuMask, LeastFinite_IsAScore) {
  const kit::Context context = kit::make_context();
  Config c = config(2, 40, FA3_F32);
  c.mask_dims = "qk";
  c.softmax_scale = 0.01;
  const Tensors t = verify::make_tensors(c);
  for (int64_t j = 0; j < 40; ++j) {
    verify::set(t.attn_mask.view, {0, 0, 0, j}, -std::numeric_limits<float>::max());
    verify::set(t.attn_mask.view, {0, 0, 1, j}, j == 3 ? 0 : -std::numeric_limits<float>::max());
    verify::set(t.v.view, {0, j, 0, 0}, 0.25);
  }
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_forward(args))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
  EXPECT_NEAR(verify::get(t.o.view, {0, 0, 0, 0}), 0.25, 1e-6);
  EXPECT_NEAR(verify::get(t.o.view, {0, 1, 0, 1}), verify::get(t.v.view, {0, 3, 0, 1}), 1e-6);
  const fa3_backward_args backward = verify::backward_args(c, t);
  ASSERT_EQ(fa3_backward(context.get(), &backward, nullptr), FA3_OK) << fa3_last_error();
  for (int64_t j = 0; j < 40; ++j)
    EXPECT_TRUE(std::isfinite(verify::get(t.dk.view, {0, j, 0, 0}))) << j;
}

TEST_P(CpuMask, Gradient_AloneAndInF32) {
  Config c = config(50, 70, GetParam());
  for (const char* dims : {"bhqk", "qk", ""}) {
    c.mask_dims = dims;
    Tensors t = verify::make_tensors(c);
    t.dq = t.dk = t.dv = {};
    t.dattn_mask = verify::make_tensor(
        FA3_F32, std::vector<int64_t>(t.dattn_mask.view.shape, t.dattn_mask.view.shape + 4));
    expect_right(c, t);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuMask, ::testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         [](const auto& info) { return verify::dtype_text(info.param); });

}  // namespace
}  // namespace fa3
