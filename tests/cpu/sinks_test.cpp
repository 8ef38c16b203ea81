// SPDX-License-Identifier: BSD-3-Clause
// sinks_test.cpp — attention sinks and their gradient on the cpu backend, and what they are: a key
// more that every query sees and that has no value.
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

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Config config(int32_t dtype, int64_t q, int64_t kv) {
  Config c;
  c.dtype = dtype;
  c.backward = c.dlse = true;
  c.heads_q = 6;
  c.heads_kv = 2;
  c.head_dim_qk = c.head_dim_v = 24;
  c.seqlen_q = q;
  c.seqlen_kv = kv;
  c.with = {"sinks"};
  return c;
}

class CpuSinks : public ::testing::TestWithParam<int32_t> {
 protected:
  // Odd seeds have sinks of the type of q, those that are 3 modulo 4 their gradient, too.
  static void expect_all_right(Config c) {
    for (c.seed = 0; c.seed < (kit::thorough() ? 8u : 4u); ++c.seed) expect_right(c);
  }
};

TEST_P(CpuSinks, MasksAndLengths) {
  for (const auto& [q, kv] : {std::pair(70, 70), {200, 33}, {1, 90}, {5, 0}}) {
    Config c = config(GetParam(), q, kv);
    for (c.mask = FA3_MASK_FULL; c.mask <= FA3_MASK_WINDOW; c.mask = fa3_mask(c.mask + 1)) {
      c.left = c.mask == FA3_MASK_WINDOW ? 40 : 0;
      c.right = c.mask == FA3_MASK_WINDOW ? 5 : 0;
      expect_all_right(c);
    }
  }
}

TEST_P(CpuSinks, VarlenAndUsedRows) {
  Config c = config(GetParam(), 1, 1);
  c.varlen_q = {40, 0, 7, 130};
  c.varlen_kv = {50, 9, 0, 300};
  c.spare_q = 3;
  c.mask = FA3_MASK_CAUSAL;
  expect_all_right(c);
  c.seqused_q = {33, 0, 7, 100};
  c.seqused_kv = {50, 4, 0, 210};
  expect_all_right(c);
}

TEST_P(CpuSinks, BesideOtherTerms) {
  Config c = config(GetParam(), 60, 80);
  c.softcap = 3;
  c.alibi = true;
  expect_all_right(c);
  c.softmax_scale = -0.4;
  c.sequence_ids = 3, c.scattered_ids = true;
  expect_all_right(c);
  c.attn_mask = FA3_F32, c.dattn_mask = true;
  expect_all_right(c);
}

// A few queries, whose keys are split.
TEST_P(CpuSinks, Decode) {
  Config c = config(GetParam(), 2, 3000);
  c.backward = c.dlse = false;
  c.heads_kv = 1;
  c.mask = FA3_MASK_CAUSAL;
  expect_all_right(c);
  c.seqused_kv = {17};
  expect_all_right(c);
}

std::string dtype_name_of(const testing::TestParamInfo<int32_t>& info) {
  return verify::dtype_text(info.param);
}
INSTANTIATE_TEST_SUITE_P(Types, CpuSinks, testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         dtype_name_of);

// ---- What they are -----------------------------------------------------------------------------

class SinkIs : public ::testing::TestWithParam<fa3_backend> {
 protected:
  SinkIs() {
    fa3_context_options options = kit::default_options();
    options.backend = GetParam();
    context_ = kit::make_context(options);
  }
  void forward(const Config& c, const Tensors& t) {
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(context_.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  }
  void backward(const Config& c, const Tensors& t) {
    const fa3_backward_args args = verify::backward_args(c, t);
    ASSERT_EQ(fa3_backward(context_.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  }
  kit::Context context_;
};

// An added mask makes a key of 0 score `sink`; its value is 0. Its score's gradient is the mask's.
TEST_P(SinkIs, AKeyWithoutAValue) {
  Config with = config(FA3_F32, 9, 20);
  with.heads_kv = with.heads_q;
  Config without = with;
  without.with = {};
  without.seqlen_kv = 21;
  without.attn_mask = FA3_F32, without.mask_dims = "hk", without.dattn_mask = true;
  without.seed = 2;  // a mask without expanded dimensions
  with.seed = 2;
  const Tensors a = make_tensors(with), b = make_tensors(without);
  const fa3_tensor& sinks = a.with.at("sinks").view;
  for (int64_t h = 0; h < with.heads_q; ++h) {
    const double sink = static_cast<double>(h) * 2 - 5;
    verify::set(sinks, {h}, sink);
    for (int64_t j = 0; j <= with.seqlen_kv; ++j) {
      const bool last = j == with.seqlen_kv;
      verify::set(b.attn_mask.view, {0, h, 0, j}, last ? sink : 0);
      for (int64_t c = 0; c < with.head_dim_qk; ++c) {
        verify::set(b.k.view, {0, j, h, c}, last ? 0 : verify::get(a.k.view, {0, j, h, c}));
        verify::set(b.v.view, {0, j, h, c}, last ? 0 : verify::get(a.v.view, {0, j, h, c}));
      }
    }
  }
  forward(with, a), forward(without, b);
  backward(with, a), backward(without, b);
  for (int64_t h = 0; h < with.heads_q; ++h) {
    const double gradient = verify::get(b.dattn_mask.view, {0, h, 0, with.seqlen_kv});
    EXPECT_NEAR(verify::get(a.with.at("dsinks").view, {h}), gradient,
                1e-5 * (1 + std::abs(gradient)));
    for (int64_t i = 0; i < with.seqlen_q; ++i) {
      EXPECT_NEAR(verify::get(a.lse.view, {0, h, i}), verify::get(b.lse.view, {0, h, i}), 1e-5);
      for (int64_t c = 0; c < with.head_dim_v; ++c) {
        EXPECT_NEAR(verify::get(a.o.view, {0, i, h, c}), verify::get(b.o.view, {0, i, h, c}), 1e-5);
        EXPECT_NEAR(verify::get(a.dq.view, {0, i, h, c}), verify::get(b.dq.view, {0, i, h, c}),
                    1e-5);
      }
    }
  }
}

// Rows that see no key have the sink alone; those that do not count have nothing.
TEST_P(SinkIs, AllThatARowWithoutKeysHas) {
  Config c = config(FA3_F32, 5, 3);
  c.mask = FA3_MASK_CAUSAL;  // queries 0 and 1 see nothing
  c.seqused_q = {4};         // and with seqused, query 0
  const Tensors t = make_tensors(c);
  const fa3_tensor& sinks = t.with.at("sinks").view;
  for (int64_t h = 0; h < c.heads_q; ++h) verify::set(sinks, {h}, h == 0 ? -kInf : 0.25 + h);
  forward(c, t);
  backward(c, t);
  for (int64_t h = 0; h < c.heads_q; ++h) {
    EXPECT_EQ(verify::get(t.lse.view, {0, h, 0}), h == 0 ? -kInf : 0.25 + h);
    EXPECT_EQ(verify::get(t.lse.view, {0, h, 4}), -kInf);
    for (int64_t column = 0; column < c.head_dim_v; ++column) {
      EXPECT_EQ(verify::get(t.o.view, {0, 0, h, column}), 0);
      EXPECT_EQ(verify::get(t.dq.view, {0, 0, h, column}), 0);
    }
  }
  EXPECT_EQ(verify::get(t.with.at("dsinks").view, {0}), 0);
}

// −∞ is none, to the bit.
TEST_P(SinkIs, NothingIfMinusInf) {
  Config c = config(FA3_F32, 40, 50), without = c;
  without.with = {};
  const Tensors a = make_tensors(c), b = make_tensors(without);
  for (int64_t h = 0; h < c.heads_q; ++h) verify::set(a.with.at("sinks").view, {h}, -kInf);
  forward(c, a), forward(without, b);
  verify::for_each_row(a.o.view, [&](const Index& at, void*) {
    Index i = at;
    for (; i[3] < c.head_dim_v; ++i[3])
      ASSERT_EQ(verify::get(a.o.view, i), verify::get(b.o.view, i));
  });
}

// Far above all scores it takes the whole weight; NaN and +∞ make all rows of their head NaN.
TEST_P(SinkIs, AllOrNan) {
  Config c = config(FA3_F32, 4, 10);
  const Tensors t = make_tensors(c);
  verify::set(t.with.at("sinks").view, {0}, 500);
  verify::set(t.with.at("sinks").view, {1}, GetParam() == FA3_BACKEND_CPU ? kNan : kInf);
  for (int64_t h = 2; h < c.heads_q; ++h) verify::set(t.with.at("sinks").view, {h}, 0);
  verify::set(t.v.view, {0, 3, 1, 7}, kNan);  // of heads 3 to 5
  forward(c, t);
  backward(c, t);
  for (int64_t i = 0; i < c.seqlen_q; ++i) {
    EXPECT_EQ(verify::get(t.lse.view, {0, 0, i}), 500);
    EXPECT_TRUE(std::isnan(verify::get(t.lse.view, {0, 1, i})));
    for (int64_t column = 0; column < c.head_dim_v; ++column) {
      EXPECT_EQ(verify::get(t.o.view, {0, i, 0, column}), 0);
      EXPECT_TRUE(std::isnan(verify::get(t.o.view, {0, i, 1, column})));
      EXPECT_FALSE(std::isnan(verify::get(t.o.view, {0, i, 2, column})));
      EXPECT_EQ(std::isnan(verify::get(t.o.view, {0, i, 4, column})), column == 7);
    }
  }
  EXPECT_TRUE(std::isnan(verify::get(t.with.at("dsinks").view, {1})));
}

TEST_P(SinkIs, Refused) {
  Config c = config(FA3_F32, 4, 10);
  const Tensors t = make_tensors(c);
  const auto refusal = [&](const auto& change) {
    fa3_backward_args args = verify::backward_args(c, t);
    change(args);
    EXPECT_EQ(fa3_backward(context_.get(), &args, nullptr), FA3_INVALID_ARGUMENT);
    return std::string(fa3_last_error());
  };
  EXPECT_THAT(refusal([](fa3_backward_args& a) { a.sinks = {}; }),
              HasSubstr("dsinks is given, but sinks is absent"));
  EXPECT_THAT(refusal([](fa3_backward_args& a) { a.sinks.shape[0] = 2; }),
              HasSubstr("sinks.shape[0]=2 disagrees with heads_q=6"));
  EXPECT_THAT(refusal([](fa3_backward_args& a) { a.sinks.dtype = FA3_I32; }),
              HasSubstr("sinks.dtype=i32, need f32, f16 or bf16"));
  EXPECT_THAT(refusal([](fa3_backward_args& a) { a.dsinks.dtype = FA3_BF16; }),
              HasSubstr("dsinks.dtype=bf16, need f32 or the type of sinks"));
  EXPECT_THAT(refusal([](fa3_backward_args& a) { a.dsinks.data = a.sinks.data; }),
              HasSubstr("shares elements with sinks"));
}

// Gradients of F64 by differences of the forward.
TEST(ReferenceSinks, F64Gradient_IsThatOfTheLoss) {
  fa3_context_options options = kit::default_options();
  options.backend = FA3_BACKEND_REFERENCE;
  const kit::Context context = kit::make_context(options);
  constexpr int64_t kHeads = 2, kRows = 3, kKeys = 4, kDim = 5;
  std::vector<double> q(kRows * kHeads * kDim), k(kKeys * kHeads * kDim), v(k.size()), o(q.size()),
      dout(q.size()), sinks{0.3, -0.7}, dsinks(kHeads);
  std::vector<float> lse(kHeads * kRows), dlse(lse.size());
  verify::Random random(5);
  for (auto* x : {&q, &k, &v, &dout})
    for (double& value : *x) value = random.normal();
  for (float& value : dlse) value = static_cast<float>(random.normal());
  const auto dense = [](auto& data, fa3_dtype dtype, std::vector<int64_t> shape) {
    return fa3_dense(data.data(), dtype, static_cast<int32_t>(shape.size()), shape.data());
  };
  fa3_forward_args f{};
  f.struct_size = sizeof f;
  f.q = dense(q, FA3_F64, {1, kRows, kHeads, kDim}),
  f.o = dense(o, FA3_F64, {1, kRows, kHeads, kDim});
  f.k = dense(k, FA3_F64, {1, kKeys, kHeads, kDim}),
  f.v = dense(v, FA3_F64, {1, kKeys, kHeads, kDim});
  f.lse = dense(lse, FA3_F32, {1, kHeads, kRows});
  f.sinks = dense(sinks, FA3_F64, {kHeads});
  const auto loss = [&] {  // without dlse: LSE has FP32's digits
    EXPECT_EQ(fa3_forward(context.get(), &f, nullptr), FA3_OK) << fa3_last_error();
    double sum = 0;
    for (size_t i = 0; i < o.size(); ++i) sum += o[i] * dout[i];
    return sum;
  };
  loss();
  fa3_backward_args b{};
  b.struct_size = sizeof b;
  b.q = f.q, b.k = f.k, b.v = f.v, b.o = f.o, b.lse = f.lse, b.sinks = f.sinks;
  b.dout = dense(dout, FA3_F64, {1, kRows, kHeads, kDim});
  b.dsinks = dense(dsinks, FA3_F64, {kHeads});
  ASSERT_EQ(fa3_backward(context.get(), &b, nullptr), FA3_OK) << fa3_last_error();
  for (size_t h = 0; h < kHeads; ++h) {
    const double at = sinks[h], step = 1e-5;
    sinks[h] = at + step;
    const double above = loss();
    sinks[h] = at - step;
    const double below = loss();
    sinks[h] = at;
    EXPECT_NEAR(dsinks[h], (above - below) / (2 * step), 1e-8) << h;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SinkIs, testing::Values(FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE),
                         [](const auto& backend) {
                           return std::string(verify::backend_name(backend.param));
                         });

}  // namespace
}  // namespace fa3
