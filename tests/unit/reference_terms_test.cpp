// SPDX-License-Identifier: BSD-3-Clause
// reference_terms_test.cpp — ALiBi and sequence ids in the FP64 reference, against a computation
// that has nothing in common with it: every pair of query and key, a direct sum of exponentials.
#include "reference_kit.h"

namespace fa3 {
namespace {

using test::Case;
using test::check_gradients;
using test::expect_near;
using test::kInf;
using test::kNan;

// A dense problem's O and LSE, straight from fa3.h. Scores are small: nothing overflows.
struct Plain {
  std::vector<double> o, lse;

  explicit Plain(const Case& c) : o(c.o.size(), 0), lse(c.lse.size(), -kInf) {
    for (int64_t b = 0; b < c.p.batch; ++b)
      for (int64_t h = 0; h < c.p.heads_q; ++h)
        for (int64_t i = 0; i < c.p.q.rows; ++i) row(c, b, h, i);
  }

  static bool visible(const Case& c, int64_t b, int64_t i, int64_t j) {
    const int64_t position = position_of(c, i);
    if (!c.ids_q.empty() && c.ids_q[b * c.p.q.rows + i] != c.ids_kv[b * c.p.kv.rows + j])
      return false;
    if (const int64_t n = c.p.attention_chunk; n > 0 && (position < 0 || position / n != j / n))
      return false;
    if (c.p.mask == FA3_MASK_CAUSAL) return j <= position;
    if (c.p.mask == FA3_MASK_WINDOW) return j >= position - c.p.left && j <= position + c.p.right;
    return true;
  }

  static int64_t position_of(const Case& c, int64_t i) {
    return c.p.top_left ? i : i + c.p.kv.rows - c.p.q.rows;
  }
  static double mask(const Case& c, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (c.mask.empty()) return 0;
    const std::vector<int64_t>& n = c.mask_shape;
    const auto at = [&](int d, int64_t x) { return n[d] == 1 ? 0 : x; };
    return c.mask[((at(0, b) * n[1] + at(1, h)) * n[2] + at(2, i)) * n[3] + at(3, j)];
  }

  static double score(const Case& c, int64_t b, int64_t h, int64_t i, int64_t j) {
    const Problem& p = c.p;
    const int64_t row_q = (b * p.q.rows + i) * p.heads_q + h;
    const int64_t row_k = (b * p.kv.rows + j) * p.heads_kv + h / (p.heads_q / p.heads_kv);
    double s = 0;
    for (int64_t d = 0; d < p.head_dim_qk; ++d)
      s += double{c.q[row_q * p.head_dim_qk + d]} * c.k[row_k * p.head_dim_qk + d];
    s *= p.softmax_scale;
    if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
    s += mask(c, b, h, i, j);
    if (c.slopes.empty()) return s;
    const bool of_batch = std::ssize(c.slopes) > p.heads_q;
    const double slope = c.slopes[(of_batch ? b * p.heads_q : 0) + h];
    return s - slope * std::fabs(static_cast<double>(position_of(c, i) - j));
  }

  void row(const Case& c, int64_t b, int64_t h, int64_t i) {
    const Problem& p = c.p;
    double sum = 0;
    double* const out = o.data() + ((b * p.q.rows + i) * p.heads_q + h) * p.head_dim_v;
    for (int64_t j = 0; j < p.kv.rows; ++j) {
      if (!visible(c, b, i, j)) continue;
      const double weight = std::exp(score(c, b, h, i, j));
      const int64_t row_v = (b * p.kv.rows + j) * p.heads_kv + h / (p.heads_q / p.heads_kv);
      sum += weight;
      for (int64_t d = 0; d < p.head_dim_v; ++d) out[d] += weight * c.v[row_v * p.head_dim_v + d];
    }
    if (sum == 0) return;
    for (int64_t d = 0; d < p.head_dim_v; ++d) out[d] /= sum;
    lse[(b * p.heads_q + h) * p.q.rows + i] = std::log(sum);
  }
};

void expect_plain(Case c, uint64_t seed) {
  c.randomise(seed);
  c.forward();
  const Plain plain(c);
  expect_near(c.o, plain.o, 5e-7);
  for (size_t i = 0; i < c.lse.size(); ++i) {
    if (plain.lse[i] == -kInf)
      EXPECT_EQ(c.lse[i], -kInf) << i;
    else
      EXPECT_NEAR(c.lse[i], plain.lse[i], 2e-6) << i;
  }
}

// Two batch entries, four heads over two; ids in no order, some that no key has.
Case grouped() {
  Case c(2, 4, 2, 5, 7, 3, 2);
  c.p.softmax_scale = 0.6;
  return c;
}
void add_ids(Case& c) {
  c.ids_q = {1, 1, 2, 9, 3, 3, 1, 2, 2, 9};
  c.ids_kv = {1, 2, 1, 3, 3, 2, 1, 2, 2, 3, 1, 3, 3, 2};
}

TEST(ReferenceTerms, Alibi_AsComputedPlainly) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
    Case c = grouped();
    c.p.mask = mask;
    if (mask == FA3_MASK_WINDOW) c.p.left = 2, c.p.right = 1;
    c.slopes = {0.5f, 0.25f, 0, -0.125f};
    expect_plain(c, 1);
    c.slopes = {0.5f, 0.25f, 0, -0.125f, 1, -0.5f, 0.75f, 0.1f};
    expect_plain(c, 2);
    c.p.softcap = 0.8;
    expect_plain(c, 3);
  }
}

TEST(ReferenceTerms, Chunks_AsComputedPlainly) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
    for (const int64_t chunk : {1, 3, 100}) {
      Case c = grouped();
      c.p.mask = mask;
      if (mask == FA3_MASK_WINDOW) c.p.left = 2, c.p.right = 1;
      c.p.attention_chunk = chunk;
      expect_plain(c, 1);
    }
  }
}

TEST(ReferenceTerms, SequenceIds_AsComputedPlainly) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
    Case c = grouped();
    c.p.mask = mask;
    if (mask == FA3_MASK_WINDOW) c.p.left = 2, c.p.right = 1;
    add_ids(c);
    expect_plain(c, 4);
    c.slopes = {0.5f, 0.25f, 0, -0.125f};
    expect_plain(c, 5);
  }
}

TEST(ReferenceTerms, Alibi_DistanceIsThatOfTheDiagonal) {
  Case c(1, 1, 1, 2, 4, 1, 1);  // queries at keys 2 and 3
  c.p.mask = FA3_MASK_CAUSAL;
  c.slopes = {1};
  c.forward();  // scores −2, −1, 0 and −3 … 0
  expect_near(c.lse, {std::log(1 + std::exp(-1) + std::exp(-2)),
                      std::log(1 + std::exp(-1) + std::exp(-2) + std::exp(-3))});
}

TEST(ReferenceTerms, Alibi_LengthsAreThoseOfTheSequence) {
  Case c(1, 1, 1, 1, 1, 1, 1);
  c.pack({0, 1, 3}, 3, {0, 2, 5}, 5);
  c.used_kv = {2, 1};
  c.slopes = {2};
  c.forward();  // query 0 at key 1 of two; queries of the second at keys −1 and 0 of the one
  expect_near(c.lse, {std::log(1 + std::exp(-2.0)), -2, 0});
}

TEST(ReferenceTerms, Alibi_InfAndNanAreReckonedWith) {
  Case c(1, 2, 1, 1, 2, 1, 1);  // distances 1 and 0
  c.v = {3, 5};
  c.slopes = {kInf, kNan};
  c.forward();
  EXPECT_TRUE(std::isnan(c.lse[0])) << "Inf times 0";
  EXPECT_TRUE(std::isnan(c.lse[1]));
}

TEST(ReferenceTerms, SequenceIds_RowsWithoutAKeyAreEmpty) {
  Case c(1, 1, 1, 3, 3, 2, 2);
  c.randomise(6);
  c.ids_q = {5, 7, 5};
  c.ids_kv = {5, 5, 6};
  c.dout[2] = c.dlse[1] = kNan;  // of query 1, which sees nothing
  c.k[4] = c.v[4] = kNan;        // key 2, which no query sees
  c.forward();
  c.backward();
  EXPECT_EQ(c.o[2], 0);
  EXPECT_EQ(c.lse[1], -kInf);
  EXPECT_EQ(c.dq[2], 0);
  EXPECT_EQ(c.dv[4], 0);
  EXPECT_EQ(c.dk[4], 0);
  for (const auto* tensor : {&c.o, &c.dq, &c.dk, &c.dv})
    for (const float x : *tensor) EXPECT_TRUE(std::isfinite(x));
}

TEST(ReferenceTerms, SequenceIds_OfVarlenAndUnusedRows) {
  Case c(1, 1, 1, 1, 1, 1, 1);
  c.pack({0, 2, 3}, 4, {0, 3, 5}, 6);
  c.used_kv = {2, 2};
  c.v = {1, 2, kNan, 4, 5, kNan};
  c.ids_q = {1, 2, 1, 1};
  c.ids_kv = {2, 1, 1, 1, 2, 1};  // key 2 is beyond seqused, key 5 in no sequence
  c.forward();
  expect_near(c.o, {2, 1, 4, 0});
}

// Values of a mask of these extents, one in five of them −inf where `hides`.
void add_mask(Case& c, std::vector<int64_t> shape, bool hides) {
  c.mask_shape = std::move(shape);
  c.mask.resize(c.mask_shape[0] * c.mask_shape[1] * c.mask_shape[2] * c.mask_shape[3]);
  for (size_t i = 0; i < c.mask.size(); ++i)
    c.mask[i] = hides && i % 5 == 3 ? -kInf : static_cast<float>(i * 7 % 11) / 8 - 0.5f;
}

TEST(ReferenceTerms, Mask_AsComputedPlainly) {
  const std::vector<int64_t> shapes[] = {{2, 4, 5, 7}, {1, 1, 5, 7}, {2, 1, 1, 7},
                                         {1, 4, 5, 1}, {1, 1, 1, 1}, {2, 4, 1, 1}};
  for (const auto& shape : shapes) {
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
      Case c = grouped();
      c.p.mask = mask;
      add_mask(c, shape, true);
      expect_plain(c, 7);
      c.p.top_left = true;
      c.p.softcap = 0.8;
      expect_plain(c, 8);
      add_ids(c);
      c.slopes = {0.5f, 0.25f, 0, -0.125f};
      expect_plain(c, 9);
    }
  }
}

TEST(ReferenceTerms, Mask_RowsThatItHidesAreEmpty) {
  Case c(1, 1, 1, 2, 2, 1, 1);
  c.randomise(3);
  c.mask_shape = {1, 1, 2, 2};
  c.mask = {-kInf, -kInf, 0, -kInf};
  c.dout[0] = c.dlse[0] = c.q[0] = kNan;  // of query 0, which sees nothing
  c.k[1] = c.v[1] = kNan;                 // key 1, which no query sees
  c.forward();
  c.backward();
  EXPECT_EQ(c.o[0], 0);
  EXPECT_EQ(c.lse[0], -kInf);
  EXPECT_EQ(c.dq[0], 0);
  EXPECT_EQ(c.dk[1], 0);
  EXPECT_EQ(c.dv[1], 0);
  EXPECT_EQ(c.o[1], c.v[0]);
  expect_near(c.dmask, {0, 0, c.dlse[1], 0});
}

TEST(ReferenceTerms, MaskGradient_OfNoKeysIs0) {
  Case c(1, 2, 1, 3, 0, 1, 1);
  c.randomise(4);
  add_mask(c, {1, 2, 3, 1}, false);
  c.forward();
  c.backward();
  expect_near(c.dmask, {0, 0, 0, 0, 0, 0});
}

// Few outputs: the rounding of each adds to the noise of the differences.
TEST(ReferenceTerms, MaskGradients_MatchFiniteDifferences) {
  const std::vector<int64_t> shapes[] = {{2, 2, 4, 5}, {1, 1, 4, 5}, {2, 1, 1, 5}, {1, 2, 4, 1}};
  for (const auto& shape : shapes) {
    Case c(2, 2, 1, 4, 5, 2, 1);
    c.p.softmax_scale = 0.6;
    add_mask(c, shape, false);
    check_gradients(c, 31);
    c.p.mask = FA3_MASK_CAUSAL;
    c.p.top_left = true;
    c.p.softcap = 1.5;
    check_gradients(c, 32);
  }
}

TEST(ReferenceTerms, Gradients_MatchFiniteDifferences) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    Case c = grouped();
    c.p.mask = mask;
    c.slopes = {0.5f, 0.25f, 0, -0.125f};
    check_gradients(c, 21);
    add_ids(c);
    check_gradients(c, 22);
    c.p.softcap = 1.5;
    check_gradients(c, 23);
  }
}

}  // namespace
}  // namespace fa3
