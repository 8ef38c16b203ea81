// SPDX-License-Identifier: BSD-3-Clause
// precision.h — calls with fa3_forward_args::precision, and the same by hand.
#pragma once

#include <cmath>
#include <random>

#include "tests/kit/context.h"

namespace fa3::kit {

// Rows of q, k and v that share a scale: those of a tile on the processor, by heads on a GPU.
struct RowsOfScale {
  int64_t q = 128, k = 128, v = 128;
};

// BF16 queries, keys and values; three sequences, dense or varlen with one that is empty.
class PrecisionTest : public testing::Test {
 protected:
  static constexpr int64_t kBatch = 3, kHeads = 4, kHeadsKv = 2;
  bool varlen = false;
  int64_t len_q = 30, len_kv = 300, dim = 128, total_q = 70, total_kv = 500;
  std::vector<int32_t> cu_q{0, 30, 30, 60}, cu_kv{0, 300, 310, 400};
  std::vector<uint16_t> q, k, v;
  fa3_dtype out = FA3_F32;
  std::vector<uint8_t> o;
  std::vector<float> lse;
  RowsOfScale rows;

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
    const size_t elements = count(shape(true));
    o.assign(elements * static_cast<size_t>(verify::element_bytes(out)), 0xff);
    lse.assign(elements / static_cast<size_t>(dim), NAN);
    fa3_forward_args a{};
    a.struct_size = sizeof a;
    a.q = dense(q.data(), FA3_BF16, shape(true));
    a.k = dense(k.data(), FA3_BF16, shape(false));
    a.v = dense(v.data(), FA3_BF16, shape(false));
    a.o = dense(o.data(), out, shape(true));
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

  double o_at(size_t i) const {
    return verify::decode(out, &o[i * static_cast<size_t>(verify::element_bytes(out))]);
  }
  // Root of the mean square of O's difference from `exact`, relative to that of `exact`.
  double error_to(const std::vector<double>& exact) const {
    double sum = 0, sum_of_squares = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      sum += std::pow(o_at(i) - exact[i], 2);
      sum_of_squares += exact[i] * exact[i];
    }
    return std::sqrt(sum / sum_of_squares);
  }
  std::vector<double> values() const {
    std::vector<double> all(o.size() / static_cast<size_t>(verify::element_bytes(out)));
    for (size_t i = 0; i < all.size(); ++i) all[i] = o_at(i);
    return all;
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
    const int64_t longest = shape(query)[varlen ? 0 : 1],
                  blocks = rows == 0 ? 1 : (longest + rows - 1) / rows;
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

  // A call with a precision has the bits of fa3_quantize and a forward on its codes.
  void expect_quantize_and_forward(int64_t d, fa3_precision precision, fa3_context* on) {
    dim = d;
    fill();
    const bool fp8 = precision == FA3_PRECISION_FP8;
    const bool keeps_v = precision == FA3_PRECISION_EIGHT_BIT_ACCURATE || (!fp8 && d <= 64);
    run(args(precision), on);
    const std::vector<uint8_t> o1 = o;
    const std::vector<float> lse1 = lse;
    fa3_forward_args a = args(FA3_PRECISION_DEFAULT);
    const fa3_dtype qk = fp8 ? FA3_F8_E4M3 : FA3_I8;
    const int64_t rows_q = fp8 ? rows.q : 1;
    const Coded cq = quantized(q, true, qk, rows_q, true, false, on);
    const Coded ck = quantized(k, false, qk, rows.k, true, !fp8, on);
    const Coded cv = quantized(v, false, FA3_F8_E4M3, rows.v, false, !fp8, on);
    a.q = cq.tensor, a.k = ck.tensor;
    a.q_scale = cq.scales, a.k_scale = ck.scales, a.k_offset = ck.offsets;
    a.q_block.rows = static_cast<int32_t>(rows_q), a.k_block.rows = static_cast<int32_t>(rows.k);
    if (!keeps_v) {
      a.v = cv.tensor, a.v_scale = cv.scales, a.v_offset = cv.offsets;
      a.v_block.rows = static_cast<int32_t>(rows.v);
    }
    run(a, on);
    EXPECT_EQ(o, o1) << d << " " << varlen << " " << int{precision};
    EXPECT_EQ(lse, lse1);
  }

  // A NaN in a key is in the rows that see it or, of INT8, anything of its block, and in no other.
  void expect_nan_of_key(fa3_precision precision, fa3_context* on) {
    constexpr int64_t kBlind = 10;            // rows without keys
    const int64_t key = len_kv / 2 - kBlind;  // in sequence 1, head 0
    len_q = len_kv + kBlind;
    fill();
    verify::encode(
        FA3_BF16, NAN,
        reinterpret_cast<uint8_t*>(&k[static_cast<size_t>((len_kv + key) * kHeadsKv * dim + 9)]));
    run(args(precision), on);
    const int64_t of_block = rows.k == 0 ? 0 : key / rows.k * rows.k;
    const int64_t first = kBlind + (precision == FA3_PRECISION_FP8 ? key : of_block);
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t i = 0; i < len_q; ++i)
        for (int64_t h = 0; h < kHeads; ++h) {
          const double x = o_at(static_cast<size_t>(((b * len_q + i) * kHeads + h) * dim));
          EXPECT_EQ(std::isnan(x), b == 1 && h < kHeads / kHeadsKv && i >= first)
              << b << " " << i << " " << h;
          if (i < kBlind) {
            EXPECT_EQ(x, 0) << b << " " << i << " " << h;
          }
        }
  }
  // One in a query stays in its row.
  void expect_nan_of_query(fa3_precision precision, fa3_context* on) {
    constexpr int64_t kRow = 20, kHead = 3;  // of sequence 1
    fill();
    const int64_t at = ((len_q + kRow) * kHeads + kHead) * dim;
    verify::encode(FA3_BF16, NAN, reinterpret_cast<uint8_t*>(&q[static_cast<size_t>(at + 9)]));
    run(args(precision), on);
    for (int64_t i = 0; i < static_cast<int64_t>(lse.size()); ++i)
      EXPECT_EQ(std::isnan(o_at(static_cast<size_t>(i * dim))), i * dim == at) << i;
  }
};

}  // namespace fa3::kit
