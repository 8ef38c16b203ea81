// SPDX-License-Identifier: BSD-3-Clause
// verify_8bit_test.cpp — tests of the checker on 8-bit tensors: a kernel as FP8 tensor cores would
// compute it must pass, one that takes wrong scales or offsets must not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kit/context.h"
#include "tools/verify/check.h"
#include "tools/verify/scales.h"

namespace fa3::verify {
namespace {

// ---- Elements and scales -----------------------------------------------------------------------

TEST(Verify8Bit, EveryCode_DecodesAndEncodes) {
  for (const int32_t dtype : {FA3_F8_E4M3, FA3_I8}) {
    for (int bits = 0; bits < 256; ++bits) {
      const auto in = static_cast<uint8_t>(bits);
      uint8_t out = 0;
      encode(dtype, decode(dtype, &in), &out);
      ASSERT_EQ(out, in) << dtype_text(dtype);
    }
  }
}

TEST(Verify8Bit, Rounding_TiesToEvenAndSaturates) {
  EXPECT_EQ(round_to(FA3_F8_E4M3, 1 + 0x1p-4), 1);
  EXPECT_EQ(round_to(FA3_F8_E4M3, 1 + 0x3p-4), 1 + 0x1p-2);
  EXPECT_EQ(round_to(FA3_F8_E4M3, 0x1p-10), 0);
  EXPECT_EQ(round_to(FA3_F8_E4M3, 0x3p-10), 0x1p-8);
  EXPECT_EQ(round_to(FA3_F8_E4M3, -1e9), -448);
  EXPECT_EQ(round_to(FA3_F8_E4M3, std::numeric_limits<double>::infinity()), 448);
  EXPECT_TRUE(std::isnan(round_to(FA3_F8_E4M3, std::nan(""))));
  EXPECT_EQ(round_to(FA3_I8, 2.5), 2);
  EXPECT_EQ(round_to(FA3_I8, 1e9), 127);
  EXPECT_EQ(round_to(FA3_I8, -1e9), -128);
  EXPECT_EQ(round_to(FA3_I8, std::nan("")), -128);  // there is no NaN
}

TEST(Verify8Bit, Scales_ReadAsTheyAreWritten) {
  for (const char* text :
       {"none", "tensor", "head", "group", "1", "1x0", "0", "64", "64x32", "0x8"})
    EXPECT_EQ(scales_text(parse_scales(text).value()), text);
  for (const char* text : {"", "x", "3x", "x3", "-1", "1x-1", "heads", "3x4x5", "99999999999"})
    EXPECT_FALSE(parse_scales(text)) << text;
}

Config config(int32_t dtype) {
  Config c{.dtype = dtype, .batch = 2, .heads_q = 4, .heads_kv = 2};
  c.seqlen_q = 40;
  c.seqlen_kv = 90;
  c.out_dtype = FA3_F32;
  c.seed = 4;
  return c;
}

TEST(Verify8Bit, Replay_NamesWhatDiffersFromTheDefaults) {
  Config c{.dtype = FA3_I8, .v_dtype = FA3_BF16};
  c.q_scale = *parse_scales("1");
  c.k_scale = *parse_scales("64");
  c.k_offset = true;
  EXPECT_NE(
      replay_command(c).find(" --dtype i8 --v-dtype bf16 --q-scale 1 --k-scale 64 --k-offset "),
      std::string::npos)
      << replay_command(c);
}

TEST(Verify8Bit, Contradictions_AreNamed) {
  const auto says = [](void (*change)(Config&), int32_t dtype = FA3_I8) {
    Config c = config(dtype);
    change(c);
    return contradiction(c);
  };
  EXPECT_EQ(says([](Config&) {}), "");
  EXPECT_NE(says([](Config& c) { c.dtype = FA3_F8_E5M2; }), "");
  EXPECT_NE(says([](Config& c) { c.v_dtype = FA3_F32; }), "");
  EXPECT_NE(says([](Config& c) { c.v_dtype = FA3_BF16; }, FA3_F8_E4M3), "");
  EXPECT_NE(says([](Config& c) { c.out_dtype = FA3_I8; }), "");
  EXPECT_NE(says([](Config& c) { c.k_scale.of = Scales::Of::kGroups; }), "");
  EXPECT_NE(says([](Config& c) { c.v_dtype = FA3_F16, c.v_offset = true; }), "");
  EXPECT_NE(says([](Config& c) { c.q_scale.of = Scales::Of::kTensor; }, FA3_BF16), "");
  EXPECT_NE(says([](Config& c) { c.seqlen_q = 90, c.layout = Layout::kInterleaved; }), "");
}

// Rows and blocks that no sequence has: nothing may use them.
TEST(Verify8Bit, WhatNoSequenceHas_IsPoisoned) {
  Config c = config(FA3_F8_E4M3);
  c.seqused_kv = {70, 90};
  c.k_scale = *parse_scales("16");
  const Tensors t = make_tensors(c);
  EXPECT_TRUE(std::isnan(get(t.k.view, {0, 70, 1, 3})));
  EXPECT_FALSE(std::isnan(get(t.k.view, {1, 70, 1, 3})));
  EXPECT_EQ(t.k_scale.view.shape[2], 6);
  EXPECT_FALSE(std::isnan(get(t.k_scale.view, {0, 1, 4, 0})));
  EXPECT_TRUE(std::isnan(get(t.k_scale.view, {0, 1, 5, 0})));
  EXPECT_FALSE(std::isnan(get(t.k_scale.view, {1, 1, 5, 0})));
  c.dtype = FA3_I8;
  EXPECT_EQ(get(make_tensors(c).k.view, {0, 70, 1, 3}), -128);
}

// ---- Comparison --------------------------------------------------------------------------------

struct Case {
  const char* name;
  int32_t dtype, v_dtype;
  const char *q, *k, *v;
  bool offsets = false;
  bool varlen = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Config config_of(const Case& x) {
  Config c = config(x.dtype);
  c.v_dtype = x.v_dtype;
  c.q_scale = *parse_scales(x.q);
  c.k_scale = *parse_scales(x.k);
  if (is_8_bit(dtype_of_v(c))) c.v_scale = *parse_scales(x.v);
  c.k_offset = x.offsets;
  c.v_offset = x.offsets && is_8_bit(dtype_of_v(c));
  if (x.varlen) {
    c.varlen_q = {40, 0, 21};
    c.varlen_kv = {90, 4, 33};
    c.spare_q = c.spare_kv = 3;
  }
  return c;
}

constexpr Case kCases[] = {
    {"F8Heads", FA3_F8_E4M3, 0, "head", "head", "head"},
    {"F8Groups", FA3_F8_E4M3, 0, "group", "tensor", "none"},
    {"F8Blocks", FA3_F8_E4M3, 0, "16", "32x32", "16x16"},
    {"F8Tokens", FA3_F8_E4M3, 0, "1", "1", "1", true, true},
    {"I8Heads", FA3_I8, 0, "head", "head", "head"},
    {"I8Offsets", FA3_I8, 0, "1", "64", "0x32", true},
    {"I8Varlen", FA3_I8, 0, "1", "16", "16", true, true},
    {"I8SixteenBitV", FA3_I8, FA3_BF16, "1x0", "0", "none", true},
};

class Verify8BitCases : public testing::TestWithParam<Case> {};

// A run of the cpu backend on what `change` makes of the arguments, judged by what they were.
std::vector<OutputResult> judge(const Config& c, void (*change)(fa3_forward_args&)) {
  const Tensors t = make_tensors(c);
  fa3_forward_args right = forward_args(c, t), wrong = right;
  change(wrong);
  EXPECT_EQ(fa3_forward(kit::make_context().get(), &wrong, nullptr), FA3_OK) << fa3_last_error();
  return compare_forward(right);
}

bool all_ok(const std::vector<OutputResult>& results) {
  return std::all_of(results.begin(), results.end(), [](const auto& r) { return r.ok; });
}

TEST_P(Verify8BitCases, Cpu_Passes) {
  const Report report = check(config_of(GetParam()), kit::make_context().get());
  EXPECT_TRUE(report.ok) << report.text;
  for (const OutputResult& r : report.outputs) EXPECT_FALSE(r.blind()) << r.name << " " << r.width;
}

INSTANTIATE_TEST_SUITE_P(Scales, Verify8BitCases, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

float* floats(const fa3_tensor& t) { return static_cast<float*>(t.data); }

struct Mutation {
  const char* name;
  int32_t dtype;
  const char *q, *k, *v;
  bool offsets;
  void (*change)(fa3_forward_args&);
};
void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }

// Leaves the tensor that the judge reads alone.
fa3_tensor copy_of(const fa3_tensor& t) {
  static std::vector<Tensor> kept;
  kept.push_back(make_tensor(t.dtype, std::vector<int64_t>(t.shape, t.shape + t.rank)));
  const fa3_tensor copy = kept.back().view;
  for_each_row(t, [&](const Index& at, void*) {
    Index i = at;
    for (; i[t.rank - 1] < t.shape[t.rank - 1]; ++i[t.rank - 1]) set(copy, i, get(t, i));
  });
  return copy;
}

void swap_heads(fa3_tensor& scale) {
  scale = copy_of(scale);
  std::swap(floats(scale)[0], floats(scale)[1]);
}
void swap_blocks(fa3_tensor& scale) {  // of rows, of the first head
  scale = copy_of(scale);
  std::swap(floats(scale)[0], floats(scale)[scale.stride[2]]);
}

const Mutation kMutations[] = {
    {"HeadsOfQ", FA3_F8_E4M3, "head", "head", "head", false,
     [](fa3_forward_args& a) { swap_heads(a.q_scale); }},
    {"HeadsOfK", FA3_F8_E4M3, "head", "head", "head", false,
     [](fa3_forward_args& a) { swap_heads(a.k_scale); }},
    {"HeadsOfV", FA3_F8_E4M3, "head", "head", "head", false,
     [](fa3_forward_args& a) { swap_heads(a.v_scale); }},
    {"HeadsOfQInI8", FA3_I8, "head", "head", "head", false,
     [](fa3_forward_args& a) { swap_heads(a.q_scale); }},
    {"HeadsOfVInI8", FA3_I8, "head", "head", "head", false,
     [](fa3_forward_args& a) { swap_heads(a.v_scale); }},
    {"TokensOfQ", FA3_I8, "1", "head", "head", false,
     [](fa3_forward_args& a) { swap_heads(a.q_scale); }},
    {"TokensOfK", FA3_I8, "1", "1", "head", false,
     [](fa3_forward_args& a) { swap_heads(a.k_scale); }},
    {"BlocksOfQ", FA3_F8_E4M3, "16", "16", "16", false,
     [](fa3_forward_args& a) { swap_blocks(a.q_scale); }},
    {"BlocksOfK", FA3_F8_E4M3, "16", "16", "16", false,
     [](fa3_forward_args& a) { swap_blocks(a.k_scale); }},
    {"BlocksOfV", FA3_F8_E4M3, "16", "16", "16", false,
     [](fa3_forward_args& a) { swap_blocks(a.v_scale); }},
    {"OffsetOfV", FA3_I8, "1", "64", "head", true, [](fa3_forward_args& a) { a.v_offset = {}; }},
    {"OffsetOfK", FA3_I8, "1", "64", "head", true, [](fa3_forward_args& a) { a.k_offset = {}; }},
    {"HeadsOfTheOffsetOfV", FA3_F8_E4M3, "1", "64", "head", true,
     [](fa3_forward_args& a) {
       a.v_offset.data = floats(a.v_offset) + a.v_offset.stride[1];
       a.v_offset.stride[1] = 0;
     }},
};

class Verify8BitMutations : public testing::TestWithParam<Mutation> {};

TEST_P(Verify8BitMutations, IsRejected) {
  const Mutation& m = GetParam();
  Config c = config_of({m.name, m.dtype, 0, m.q, m.k, m.v, m.offsets});
  EXPECT_TRUE(all_ok(judge(c, [](fa3_forward_args&) {})));
  for (const uint64_t seed : {4, 5, 6}) {
    c.seed = seed;
    EXPECT_FALSE(all_ok(judge(c, m.change))) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Wrong, Verify8BitMutations, testing::ValuesIn(kMutations),
                         [](const auto& info) { return info.param.name; });

// ---- A kernel ----------------------------------------------------------------------------------

// Hopper's sums of FP8 products, from the definition in src/sim/tensor_core.h: terms are aligned to
// the largest and cut toward zero 13 bits after its point, and so is the sum.
float cut_toward_zero(double x, int exponent) {
  return static_cast<float>(std::ldexp(std::trunc(std::ldexp(x, 13 - exponent)), exponent - 13));
}
int exponent_of(double x) { return x == 0 ? -1000 : std::ilogb(x); }

float add_step(float sum, const float* a, const float* b, int64_t stride_b, int64_t n) {
  int largest = exponent_of(sum);
  for (int64_t i = 0; i < n; ++i)
    if (a[i] != 0 && b[i * stride_b] != 0)
      largest = std::max(largest, exponent_of(a[i]) + exponent_of(b[i * stride_b]));
  if (largest == -1000) return 0;
  double total = cut_toward_zero(sum, largest);
  for (int64_t i = 0; i < n; ++i) total += cut_toward_zero(double{a[i]} * b[i * stride_b], largest);
  return total == 0 ? 0 : cut_toward_zero(total, exponent_of(total));
}

// One head as a kernel computes it: tiles of keys from the last to the first, a maximum that lags
// behind by up to 2^4, P in E4M3, scales of the head.
struct Kernel {
  int64_t d, dv, tile;
  float scale;  // of scores in codes, with log2(e)
  float v_scale;
  bool fp8_scores;
  float lift;  // of P, before it is rounded

  float score(const float* q, const float* k) const {
    float sum = 0;
    for (int64_t c = 0; c < d && fp8_scores; c += 32)
      sum = add_step(sum, q + c, k + c, 1, std::min<int64_t>(32, d - c));
    for (int64_t c = 0; c < d && !fp8_scores; ++c) sum += q[c] * k[c];
    return sum * scale;
  }

  // O of one query, and its LSE.
  float run(const float* q, const std::vector<float>& k, const std::vector<float>& v,
            float* o) const {
    const auto len = static_cast<int64_t>(k.size()) / d;
    float max = -1e30f, sum = 0;
    std::vector<float> p(tile), s(tile);
    std::fill_n(o, dv, 0.0f);
    for (int64_t end = len; end > 0; end -= tile) {
      const int64_t begin = std::max<int64_t>(end - tile, 0), n = end - begin;
      float top = max;
      for (int64_t j = 0; j < n; ++j) {
        s[j] = score(q, k.data() + (begin + j) * d);
        top = std::max(top, s[j]);
      }
      if (top > max + 4) {
        const float rescale = std::exp2(max - top);
        sum *= rescale;
        for (int64_t c = 0; c < dv; ++c) o[c] *= rescale;
        max = top;
      }
      for (int64_t j = 0; j < n; ++j) {
        const float x = std::exp2(s[j] - max);
        sum += x;
        p[j] = static_cast<float>(round_to(FA3_F8_E4M3, lift * x));
      }
      for (int64_t j = 0; j < n; j += 32)
        for (int64_t c = 0; c < dv; ++c)
          o[c] = add_step(o[c], p.data() + j, v.data() + (begin + j) * dv + c, dv,
                          std::min<int64_t>(32, n - j));
    }
    for (int64_t c = 0; c < dv; ++c) o[c] *= v_scale / (lift * sum);
    return (max + std::log2(sum)) * std::log(2.0f);
  }
};

std::vector<float> head_of(const fa3_tensor& t, int64_t b, int64_t head) {
  std::vector<float> values;
  for (int64_t i = 0; i < t.shape[1]; ++i)
    for (int64_t c = 0; c < t.shape[3]; ++c)
      values.push_back(static_cast<float>(get(t, {b, i, head, c})));
  return values;
}

void run_kernel(const fa3_forward_args& a, float lift = 16) {
  const int64_t d = a.q.shape[3], dv = a.v.shape[3], group = a.q.shape[2] / a.k.shape[2];
  std::vector<float> o(dv);
  for (int64_t b = 0; b < a.q.shape[0]; ++b) {
    for (int64_t h = 0; h < a.q.shape[2]; ++h) {
      const auto of = [&](const fa3_tensor& scale, int64_t head) {
        return static_cast<float>(get(scale, {b, head}));
      };
      const std::vector<float> q = head_of(a.q, b, h), k = head_of(a.k, b, h / group),
                               v = head_of(a.v, b, h / group);
      const Kernel kernel{d,
                          dv,
                          64,
                          of(a.q_scale, h) * of(a.k_scale, h / group) /
                              std::sqrt(static_cast<float>(d)) * 1.44269504f,
                          of(a.v_scale, h / group),
                          a.q.dtype == FA3_F8_E4M3,
                          lift};
      for (int64_t i = 0; i < a.q.shape[1]; ++i) {
        set(a.lse, {b, h, i}, kernel.run(q.data() + i * d, k, v, o.data()));
        for (int64_t c = 0; c < dv; ++c) set(a.o, {b, i, h, c}, o[c]);
      }
    }
  }
}

struct KernelCase {
  const char* name;
  int32_t dtype;
  int64_t seqlen_kv, head_dim;
  double magnitude;
};
void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.name; }

class Verify8BitKernel : public testing::TestWithParam<KernelCase> {};

TEST_P(Verify8BitKernel, Passes) {
  const KernelCase& x = GetParam();
  Config c = config(x.dtype);
  if (x.seqlen_kv > 1000) c.seqlen_q = 6;
  c.seqlen_kv = x.seqlen_kv;
  c.head_dim_qk = x.head_dim;
  c.magnitude = x.magnitude;
  const Tensors t = make_tensors(c);
  const fa3_forward_args args = forward_args(c, t);
  run_kernel(args);
  for (const OutputResult& r : compare_forward(args)) {
    EXPECT_TRUE(r.ok) << to_text(r);
  }
}

constexpr KernelCase kKernelCases[] = {
    {"F8", FA3_F8_E4M3, 90, 64, 1},         {"F8Deep", FA3_F8_E4M3, 200, 256, 1},
    {"F8Long", FA3_F8_E4M3, 4096, 128, 1},  {"F8Large", FA3_F8_E4M3, 700, 128, 8},
    {"F8OneStep", FA3_F8_E4M3, 300, 32, 3}, {"I8", FA3_I8, 90, 64, 1},
    {"I8Long", FA3_I8, 4096, 128, 1},       {"I8Large", FA3_I8, 700, 128, 8},
};
// P that ends at 2^-5 instead of 2^4: its steps are 2^-4 of the largest.
TEST(Verify8Bit, CoarseP_IsRejected) {
  Config c = config(FA3_I8);
  c.seqlen_kv = 300;
  const Tensors t = make_tensors(c);
  const fa3_forward_args args = forward_args(c, t);
  run_kernel(args);
  EXPECT_TRUE(all_ok(compare_forward(args)));
  run_kernel(args, 0x1p-5f);
  EXPECT_FALSE(all_ok(compare_forward(args)));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Verify8BitKernel, testing::ValuesIn(kKernelCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3::verify
