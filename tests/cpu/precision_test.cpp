// SPDX-License-Identifier: BSD-3-Clause
// precision_test.cpp — fa3_forward_args::precision on the processor: the bits of fa3_quantize and a
// forward on its codes, errors in the order that the recipes promise, NaN, and what is refused.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/kit/context.h"

namespace fa3 {
namespace {

using testing::HasSubstr;

constexpr int64_t kTile = 128;  // rows of k and v that share a scale

// BF16 queries, keys and values; three sequences, dense or varlen with one that is empty.
class Precision : public testing::Test {
 protected:
  static constexpr int64_t kBatch = 3, kHeads = 4, kHeadsKv = 2;
  bool varlen = false;
  int64_t len_q = 30, len_kv = 300, dim = 128, total_q = 70, total_kv = 500;
  std::vector<int32_t> cu_q{0, 30, 30, 60}, cu_kv{0, 300, 310, 400};
  std::vector<uint16_t> q, k, v;
  std::vector<float> o, lse;

  std::vector<int64_t> shape(bool query) const {
    const int64_t heads = query ? kHeads : kHeadsKv;
    if (varlen) return {query ? total_q : total_kv, heads, dim};
    return {kBatch, query ? len_q : len_kv, heads, dim};
  }
  static size_t count(const std::vector<int64_t>& shape) {
    size_t n = 1;
    for (const int64_t extent : shape) n *= static_cast<size_t>(extent);
    return n;
  }
  static fa3_tensor dense(const void* data, fa3_dtype type, const std::vector<int64_t>& shape) {
    return fa3_dense(data, type, static_cast<int32_t>(shape.size()), shape.data());
  }

  void fill(uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (auto [to, query] : {std::pair(&q, true), std::pair(&k, false), std::pair(&v, false)}) {
      to->resize(count(shape(query)));
      for (uint16_t& x : *to)
        verify::encode(FA3_BF16, normal(random) + (random() % 500 == 0 ? 10 * normal(random) : 0),
                       reinterpret_cast<uint8_t*>(&x));
    }
  }

  fa3_forward_args args(fa3_precision precision) {
    o.assign(count(shape(true)), NAN);
    lse.assign(o.size() / static_cast<size_t>(dim), NAN);
    fa3_forward_args a{};
    a.struct_size = sizeof a;
    a.q = dense(q.data(), FA3_BF16, shape(true));
    a.k = dense(k.data(), FA3_BF16, shape(false));
    a.v = dense(v.data(), FA3_BF16, shape(false));
    a.o = dense(o.data(), FA3_F32, shape(true));
    a.lse = varlen ? dense(lse.data(), FA3_F32, {kHeads, total_q})
                   : dense(lse.data(), FA3_F32, {kBatch, kHeads, len_q});
    if (varlen) {
      a.cu_seqlens_q = dense(cu_q.data(), FA3_I32, {kBatch + 1});
      a.cu_seqlens_kv = dense(cu_kv.data(), FA3_I32, {kBatch + 1});
    }
    a.mask = FA3_MASK_CAUSAL;
    a.precision = precision;
    a.precision_seed = precision == FA3_PRECISION_DEFAULT ? 0 : 42;
    return a;
  }
  void run(const fa3_forward_args& a, fa3_context* context) {
    ASSERT_EQ(fa3_forward(context, &a, nullptr), FA3_OK) << fa3_last_error();
  }

  // What a caller would do by hand.
  struct Coded {
    std::vector<uint8_t> codes;
    std::vector<float> scale, offset;
    fa3_tensor tensor, scales, offsets{};
  };
  Coded quantized(const std::vector<uint16_t>& x, bool query, fa3_dtype type, int64_t rows,
                  bool turned, bool mean, fa3_context* context) {
    const int64_t heads = query ? kHeads : kHeadsKv;
    const int64_t longest = shape(query)[varlen ? 0 : 1], blocks = (longest + rows - 1) / rows;
    Coded c;
    c.codes.resize(x.size()), c.scale.resize(static_cast<size_t>(kBatch * heads * blocks));
    c.offset.resize(static_cast<size_t>(kBatch * heads * dim));
    fa3_quantize_args a{};
    a.struct_size = sizeof a;
    a.x = dense(x.data(), FA3_BF16, shape(query));
    a.codes = c.tensor = dense(c.codes.data(), type, shape(query));
    a.scale = c.scales = dense(c.scale.data(), FA3_F32, {kBatch, heads, blocks, 1});
    if (mean) a.offset = c.offsets = dense(c.offset.data(), FA3_F32, {kBatch, heads, dim});
    const auto& cu = query ? cu_q : cu_kv;
    if (varlen) a.cu_seqlens = dense(cu.data(), FA3_I32, {kBatch + 1});
    a.block.rows = static_cast<int32_t>(rows);
    a.hadamard = turned ? static_cast<int32_t>(dim & -dim) : 0;
    a.seed = 42;
    EXPECT_EQ(fa3_quantize(context, &a, nullptr), FA3_OK) << fa3_last_error();
    return c;
  }
};

TEST_F(Precision, IsQuantizeAndForward) {
  const kit::Context context = kit::make_context();
  fa3_context* const on = context.get();
  for (const int64_t d : {96, 64, 128}) {
    for (const bool cut : {false, true}) {
      dim = d, varlen = cut;
      fill();
      for (const fa3_precision precision :
           {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE}) {
        const bool fp8 = precision == FA3_PRECISION_FP8;
        const bool keeps_v = precision == FA3_PRECISION_EIGHT_BIT_ACCURATE || (!fp8 && d <= 64);
        run(args(precision), on);
        const std::vector<float> o1 = o, lse1 = lse;
        fa3_forward_args a = args(FA3_PRECISION_DEFAULT);
        const fa3_dtype qk = fp8 ? FA3_F8_E4M3 : FA3_I8;
        const Coded cq = quantized(q, true, qk, fp8 ? kTile : 1, true, false, on);
        const Coded ck = quantized(k, false, qk, kTile, true, !fp8, on);
        const Coded cv = quantized(v, false, FA3_F8_E4M3, kTile, false, !fp8, on);
        a.q = cq.tensor, a.k = ck.tensor;
        a.q_scale = cq.scales, a.k_scale = ck.scales, a.k_offset = ck.offsets;
        a.q_block.rows = fp8 ? kTile : 1, a.k_block.rows = kTile;
        if (!keeps_v) {
          a.v = cv.tensor, a.v_scale = cv.scales, a.v_offset = cv.offsets, a.v_block.rows = kTile;
        }
        run(a, on);
        EXPECT_EQ(o, o1) << d << " " << cut << " " << int{precision};
        EXPECT_EQ(lse, lse1);
      }
    }
  }
}

// RMSE of O against the call in 16 bits: fp8 > eight_bit > eight_bit_accurate, with room.
TEST_F(Precision, ErrorsComeInOrder) {
  const kit::Context context = kit::make_context();
  len_kv = 1000;
  fill(7);
  run(args(FA3_PRECISION_DEFAULT), context.get());
  const std::vector<float> exact = o;
  double sum_of_squares = 0;
  for (const float x : exact) sum_of_squares += double{x} * double{x};
  std::vector<double> errors;
  for (const fa3_precision precision :
       {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE}) {
    run(args(precision), context.get());
    double sum = 0;
    for (size_t i = 0; i < o.size(); ++i) sum += std::pow(double{o[i]} - double{exact[i]}, 2);
    errors.push_back(std::sqrt(sum / sum_of_squares));
  }
  EXPECT_LT(errors[0], 0.1);
  EXPECT_GT(errors[0], 1.1 * errors[1]);
  EXPECT_GT(errors[1], 2 * errors[2]);
  EXPECT_GT(errors[2], 0);
}

// A NaN in a key is in the rows that may see its block, and in no other.
TEST_F(Precision, NanReachesTheRowsThatSeeItsBlock) {
  const kit::Context context = kit::make_context();
  len_q = len_kv = 300;
  for (const fa3_precision precision : {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT}) {
    fill();
    // Key 140 of sequence 1, head 0: in the block of keys 128…255.
    verify::encode(FA3_BF16, NAN,
                   reinterpret_cast<uint8_t*>(
                       &k[static_cast<size_t>(((1 * len_kv + 140) * kHeadsKv + 0) * dim + 9)]));
    run(args(precision), context.get());
    const int64_t first = precision == FA3_PRECISION_FP8 ? 140 : 128;
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t i = 0; i < len_q; ++i)
        for (int64_t h = 0; h < kHeads; ++h) {
          const float x = o[static_cast<size_t>(((b * len_q + i) * kHeads + h) * dim)];
          EXPECT_EQ(std::isnan(x), b == 1 && h < 2 && i >= first) << b << " " << i << " " << h;
        }
  }
}

TEST_F(Precision, Refusals) {
  const kit::Context context = kit::make_context();
  fill();
  const auto refused = [&](auto&& change, const char* says) {
    fa3_forward_args a = args(FA3_PRECISION_FP8);
    change(a);
    EXPECT_EQ(fa3_forward(context.get(), &a, nullptr), FA3_INVALID_ARGUMENT) << says;
    EXPECT_THAT(fa3_last_error(), HasSubstr(says));
  };
  refused([](fa3_forward_args& a) { a.precision = 4; }, "precision=4 is unknown");
  refused([](fa3_forward_args& a) { a.precision = -1; }, "precision=-1");
  refused([](fa3_forward_args& a) { a.precision_reserved = 1; }, "precision_reserved=1");
  refused([](fa3_forward_args& a) { a.precision = 0; }, "precision_seed=42");
  refused([](fa3_forward_args& a) { a.q.dtype = a.k.dtype = a.v.dtype = FA3_F32; },
          "q.dtype=f32, need f16 or bf16; cast it");
  refused(
      [](fa3_forward_args& a) {
        a.q.dtype = a.k.dtype = a.v.dtype = FA3_F8_E4M3;
        a.o.dtype = FA3_F32;
      },
      "leave precision 0");
}

TEST_F(Precision, ExplainSaysWhatBecomes8Bits) {
  const kit::Context context = kit::make_context();
  fill();
  const fa3_forward_args a = args(FA3_PRECISION_EIGHT_BIT);
  std::string text(16384, '\0');
  ASSERT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &a, text.data(), text.size(), nullptr),
            FA3_OK)
      << fa3_last_error();
  EXPECT_THAT(text, HasSubstr("\"precision\": \"eight_bit\""));
  EXPECT_THAT(text, HasSubstr("\"fp8_alone\": false"));
}

}  // namespace
}  // namespace fa3
