// SPDX-License-Identifier: BSD-3-Clause
// coarse_rows.h — rows whose visible keys are all hidden by a large finite number: the backward's
// weights against those that a forward in FP32 uses, scores rounded after the mask is added. Scores
// are multiples of 1/8, exact however they are summed, so that all round alike.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/tensor.h"

namespace fa3::kit {

struct CoarseCase {
  int32_t dtype = FA3_F32;
  float hidden = -1e9f;  // what the mask has for every key of some rows
  bool causal = false;
  double softcap = 0;
  bool alibi = false;
  int32_t deterministic = 0;
  int64_t batch = 1, heads_q = 2, heads_kv = 1, queries = 70, keys = 140, head_dim = 64;
};

class CoarseRows {
 public:
  explicit CoarseRows(const CoarseCase& c) : c_(c) {}

  // Every third row of the mask is hidden.
  void check(fa3_context* context) { check(context, context); }
  void check(fa3_context* of_forward, fa3_context* context) {
    make();
    ASSERT_EQ(run_forward(of_forward), FA3_OK) << fa3_last_error();
    ASSERT_EQ(run_backward(context), FA3_OK) << fa3_last_error();
    judge();
    for (int64_t row = 1; row < c_.queries; row += 66) judge_sum(context, row);
  }

 private:
  static constexpr int64_t kEvery = 3;
  bool is_hidden(int64_t row) const { return row % kEvery == 1; }
  int64_t q_at(int64_t b, int64_t i, int64_t h) const {
    return ((b * c_.queries + i) * c_.heads_q + h) * c_.head_dim;
  }
  int64_t kv_at(int64_t b, int64_t j, int64_t h) const {
    return ((b * c_.keys + j) * c_.heads_kv + h) * c_.head_dim;
  }
  int64_t mask_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return ((b * c_.heads_q + h) * c_.queries + i) * c_.keys + j;
  }

  // Bytes of the type, of which `values` are exact.
  std::vector<std::byte> stored(const std::vector<float>& values) const {
    std::vector<std::byte> bytes(values.size() *
                                 static_cast<size_t>(verify::element_bytes(c_.dtype)));
    const auto count = static_cast<int64_t>(values.size());
    size_t next = 0;
    verify::generate(fa3_dense(bytes.data(), static_cast<fa3_dtype>(c_.dtype), 1, &count),
                     [&] { return static_cast<double>(values[next++]); });
    return bytes;
  }

  void make() {
    std::mt19937 random(7);
    const auto fill = [&](std::vector<float>& to, int64_t size, float step, int most) {
      std::uniform_int_distribution<int> number(-most, most);
      to.resize(static_cast<size_t>(size));
      for (float& x : to) x = step * static_cast<float>(number(random));
    };
    const int64_t d = c_.head_dim;
    fill(q_, c_.batch * c_.queries * c_.heads_q * d, 1, 1);
    fill(k_, c_.batch * c_.keys * c_.heads_kv * d, 1, 1);
    fill(v_, c_.batch * c_.keys * c_.heads_kv * d, 0.25f, 4);
    fill(dout_, c_.batch * c_.queries * c_.heads_q * d, 0.25f, 4);
    fill(mask_, c_.batch * c_.heads_q * c_.queries * c_.keys, 0.5f, 1);
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < c_.heads_q; ++h)
        for (int64_t i = 0; i < c_.queries; ++i)
          for (int64_t j = 0; j < c_.keys; ++j) {
            float& x = mask_[static_cast<size_t>(mask_at(b, h, i, j))];
            if (j % 11 == 5)
              x = -std::numeric_limits<float>::infinity();
            else if (is_hidden(i))
              x = c_.hidden;
          }
    slopes_ = {0.5f, 0.25f, 0.125f, 0.0625f};
    const auto size_q = q_.size(), size_kv = k_.size();
    dq_.assign(size_q, std::nanf("")), o_ = stored(dq_);
    dk_.assign(size_kv, std::nanf("")), dv_ = dk_;
    lse_.assign(static_cast<size_t>(c_.batch * c_.heads_q * c_.queries), std::nanf(""));
    dmask_.assign(mask_.size(), std::nanf(""));
  }

  fa3_tensor rows(const void* data, int32_t dtype, int64_t rows, int64_t heads) const {
    const int64_t shape[4] = {c_.batch, rows, heads, c_.head_dim};
    return fa3_dense(data, static_cast<fa3_dtype>(dtype), 4, shape);
  }
  template <class Args>
  void set_common(Args& args, const std::vector<std::byte>& q, const std::vector<std::byte>& k,
                  const std::vector<std::byte>& v) {
    args.struct_size = sizeof args;
    args.q = rows(q.data(), c_.dtype, c_.queries, c_.heads_q);
    args.k = rows(k.data(), c_.dtype, c_.keys, c_.heads_kv);
    args.v = rows(v.data(), c_.dtype, c_.keys, c_.heads_kv);
    args.o = rows(o_.data(), c_.dtype, c_.queries, c_.heads_q);
    const int64_t lse[3] = {c_.batch, c_.heads_q, c_.queries};
    args.lse = fa3_dense(lse_.data(), FA3_F32, 3, lse);
    const int64_t mask[4] = {c_.batch, c_.heads_q, c_.queries, c_.keys};
    args.attn_mask = fa3_dense(mask_.data(), FA3_F32, 4, mask);
    if (c_.alibi) args.alibi_slopes = fa3_dense(slopes_.data(), FA3_F32, 1, &c_.heads_q);
    args.mask = c_.causal ? FA3_MASK_CAUSAL : FA3_MASK_FULL;
    args.softmax_scale = 0.125;
    args.softcap = c_.softcap;
  }
  fa3_status run_forward(fa3_context* context) {
    const auto q = stored(q_), k = stored(k_), v = stored(v_);
    fa3_forward_args args{};
    set_common(args, q, k, v);
    return fa3_forward(context, &args, nullptr);
  }
  fa3_status run_backward(fa3_context* context) {
    const auto q = stored(q_), k = stored(k_), v = stored(v_), dout = stored(dout_);
    fa3_backward_args args{};
    set_common(args, q, k, v);
    args.dout = rows(dout.data(), c_.dtype, c_.queries, c_.heads_q);
    args.dq = rows(dq_.data(), FA3_F32, c_.queries, c_.heads_q);
    args.dk = rows(dk_.data(), FA3_F32, c_.keys, c_.heads_kv);
    args.dv = rows(dv_.data(), FA3_F32, c_.keys, c_.heads_kv);
    args.dattn_mask = args.attn_mask;
    args.dattn_mask.data = dmask_.data();
    args.deterministic = c_.deterministic;
    return fa3_backward(context, &args, nullptr);
  }

  // The gradients in FP64 of the weights exp(y − ln Σ exp y), y the score rounded to FP32.
  void judge() {
    const int64_t d = c_.head_dim, group = c_.heads_q / c_.heads_kv;
    const fa3_tensor o_rows = rows(o_.data(), c_.dtype, c_.queries, c_.heads_q);
    std::vector<double> dk(dk_.size()), dv(dv_.size());
    double most = 0, error_q = 0, error_mask = 0, error_o = 0;
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < c_.heads_q; ++h)
        for (int64_t i = 0; i < c_.queries; ++i) {
          const int64_t of_q = q_at(b, i, h), diagonal = i + c_.keys - c_.queries;
          std::vector<double> y(static_cast<size_t>(c_.keys), -HUGE_VAL), slope(y.size(), 1),
              dp(y.size());
          double largest = -HUGE_VAL;
          for (int64_t j = 0; j < c_.keys; ++j) {
            const float mask = mask_[static_cast<size_t>(mask_at(b, h, i, j))];
            if ((c_.causal && j > diagonal) || std::isinf(mask)) continue;
            double score = 0;
            for (int64_t c = 0; c < d; ++c)
              score +=
                  0.125 * static_cast<double>(q_[static_cast<size_t>(of_q + c)] *
                                              k_[static_cast<size_t>(kv_at(b, j, h / group) + c)]);
            if (c_.softcap > 0) {
              const double t = std::tanh(score / c_.softcap);
              score = c_.softcap * t, slope[static_cast<size_t>(j)] = 1 - t * t;
            }
            if (c_.alibi)
              score -= static_cast<double>(slopes_[static_cast<size_t>(h)]) *
                       static_cast<double>(std::abs(diagonal - j));
            const auto rounded = static_cast<float>(score + static_cast<double>(mask));
            y[static_cast<size_t>(j)] = static_cast<double>(rounded);
            largest = std::max(largest, y[static_cast<size_t>(j)]);
          }
          if (largest == -HUGE_VAL) continue;  // sees no key
          double sum = 0, delta = 0;
          for (double& x : y) sum += x = std::exp(x - largest);
          const double factor = 1 / sum;
          std::vector<double> o(static_cast<size_t>(d)), dq(static_cast<size_t>(d));
          for (int64_t j = 0; j < c_.keys; ++j) {
            double& p = y[static_cast<size_t>(j)];
            for (int64_t c = 0; c < d; ++c) {
              const auto at = static_cast<size_t>(kv_at(b, j, h / group) + c);
              const auto g = static_cast<double>(dout_[static_cast<size_t>(of_q + c)]);
              const auto v = static_cast<double>(v_[at]);
              o[static_cast<size_t>(c)] += p / sum * v;
              dp[static_cast<size_t>(j)] += g * v;
              dv[at] += p * factor * g;
            }
            delta += p / sum * dp[static_cast<size_t>(j)];
            p *= factor;
          }
          for (int64_t j = 0; j < c_.keys; ++j) {
            const double ds = y[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - delta);
            const auto got = static_cast<double>(dmask_[static_cast<size_t>(mask_at(b, h, i, j))]);
            error_mask = largest_of(error_mask, got - ds);
            for (int64_t c = 0; c < d; ++c) {
              const auto at = static_cast<size_t>(kv_at(b, j, h / group) + c);
              const double of_score = 0.125 * ds * slope[static_cast<size_t>(j)];
              dq[static_cast<size_t>(c)] += of_score * static_cast<double>(k_[at]);
              dk[at] += of_score * static_cast<double>(q_[static_cast<size_t>(of_q + c)]);
            }
          }
          for (int64_t c = 0; c < d; ++c) {
            const auto at = static_cast<size_t>(of_q + c);
            error_q =
                largest_of(error_q, static_cast<double>(dq_[at]) - dq[static_cast<size_t>(c)]);
            error_o =
                largest_of(error_o, verify::get(o_rows, {b, i, h, c}) - o[static_cast<size_t>(c)]);
            most = std::max(most, std::abs(dq[static_cast<size_t>(c)]));
          }
        }
    double error_k = 0, error_v = 0, sums = 0;
    for (size_t i = 0; i < dk.size(); ++i) {
      error_k = largest_of(error_k, static_cast<double>(dk_[i]) - dk[i]);
      error_v = largest_of(error_v, static_cast<double>(dv_[i]) - dv[i]);
      sums = std::max({sums, std::abs(dk[i]), std::abs(dv[i])});
    }
    const double bound = c_.dtype == FA3_BF16 ? 1.6e-2 : c_.dtype == FA3_F16 ? 2e-3 : 2e-4;
    EXPECT_LE(error_o, bound) << "o";
    EXPECT_LE(error_q, bound * std::max(1.0, most)) << "dq";
    EXPECT_LE(error_k, bound * std::max(1.0, sums)) << "dk";
    EXPECT_LE(error_v, bound * std::max(1.0, sums)) << "dv";
    EXPECT_LE(error_mask, bound * std::max(1.0, most)) << "dattn_mask";
  }
  // The weights of a hidden row add up to 1: dV for a dO that is 1 in that row, in all heads.
  void judge_sum(fa3_context* context, int64_t row) {
    std::fill(dout_.begin(), dout_.end(), 0.0f);
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < c_.heads_q; ++h)
        std::fill_n(dout_.begin() + q_at(b, row, h), c_.head_dim, 1.0f);
    ASSERT_EQ(run_backward(context), FA3_OK) << fa3_last_error();
    const bool sees_none = c_.causal && row + c_.keys - c_.queries < 0;
    const double want = sees_none ? 0 : static_cast<double>(c_.heads_q / c_.heads_kv);
    for (int64_t b = 0; b < c_.batch; ++b) {
      for (int64_t h = 0; h < c_.heads_kv; ++h) {
        double sum = 0;
        for (int64_t j = 0; j < c_.keys; ++j)
          sum += static_cast<double>(dv_[static_cast<size_t>(kv_at(b, j, h))]);
        EXPECT_NEAR(sum, want, want * (c_.dtype == FA3_BF16 ? 4e-3 : 1e-3)) << "row " << row;
      }
    }
  }
  // NaN stays.
  static double largest_of(double most, double error) {
    return !(std::abs(error) <= most) ? std::abs(error) : most;
  }

  CoarseCase c_;
  std::vector<float> q_, k_, v_, dout_, mask_, slopes_, lse_, dq_, dk_, dv_, dmask_;
  std::vector<std::byte> o_;
};

// From −1e3, which the ordinary way serves, to the least that FP32 has.
inline constexpr float kHiddenBy[] = {
    -1e3f, -1e4f, -1e5f, -1e6f, -1e7f, -1e8f, -1e9f, -1e30f, -std::numeric_limits<float>::max()};

}  // namespace fa3::kit
