// SPDX-License-Identifier: BSD-3-Clause
// outliers_test.cpp — tests of tools/verify/outliers.h: its streams and its errors.
#include "tools/verify/outliers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fa3::verify {
namespace {

// Elements of one head of a tensor (1, seqlen, heads, head_dim).
std::vector<double> head_of(const Tensor& t, int64_t head) {
  std::vector<double> values;
  for (int64_t row = 0; row < t.view.shape[1]; ++row)
    for (int64_t i = 0; i < t.view.shape[3]; ++i) values.push_back(get(t.view, {0, row, head, i}));
  return values;
}

double mean_product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / static_cast<double>(a.size());
}

// Variance 1 + 100 · 0.001, and about one element in a thousand beyond what N(0, 1) reaches.
TEST(Outliers, HaveTheirDistribution) {
  const OutlierConfig c{.heads = 1, .seqlen_kv = 4096};
  const std::vector<double> k = head_of(draw_outliers(c, 0, 1).k, 0);
  const double n = static_cast<double>(k.size());
  EXPECT_NEAR(mean_product(k, std::vector<double>(k.size(), 1)), 0, 5 * std::sqrt(1.1 / n));
  // The fourth moment is 3 · (1 + 200 · 0.001 + 10000 · 0.001) ≈ 33.6.
  EXPECT_NEAR(mean_product(k, k), 1.1, 5 * std::sqrt(33.6 / n));
  double beyond = 0;
  for (const double x : k) beyond += std::abs(x) > 6;
  EXPECT_NEAR(beyond / n, 0.00055, 0.0002);  // of N(0, 101): 2·Φ(−6/10.05) = 0.55
}

// Streams that overlap, even shifted by a few elements, would make heads copies of each other.
TEST(Outliers, HeadsAndTensors_AreUncorrelated) {
  const OutlierConfig c{.heads = 4, .seqlen_kv = 1024};
  const Attention drawn = draw_outliers(c, 0, 4);
  std::vector<std::vector<double>> streams;
  for (int64_t head = 0; head < 4; ++head) {
    streams.push_back(head_of(drawn.k, head));
    streams.push_back(head_of(drawn.v, head));
  }
  const double n = static_cast<double>(streams[0].size()), bound = 5 * 1.1 / std::sqrt(n);
  for (size_t a = 0; a < streams.size(); ++a)
    for (size_t b = 0; b < streams.size(); ++b)
      for (ptrdiff_t shift = a == b ? 1 : 0; shift < 8; ++shift) {
        const std::vector<double> later(streams[b].begin() + shift, streams[b].end());
        EXPECT_LE(std::abs(mean_product(later, streams[a])), bound)
            << a << " " << b << " " << shift;
      }
}

TEST(Outliers, ValuesDoNotDependOnHeadsAtOnce) {
  const OutlierConfig c{.heads = 3, .seqlen_kv = 16, .head_dim = 64};
  const Attention all = draw_outliers(c, 0, 3), last = draw_outliers(c, 2, 1);
  EXPECT_EQ(head_of(all.q, 2), head_of(last.q, 0));
  EXPECT_NE(head_of(all.q, 1), head_of(last.q, 0));
  EXPECT_NE(
      head_of(draw_outliers({.heads = 3, .seqlen_kv = 16, .head_dim = 64, .seed = 1}, 2, 1).q, 0),
      head_of(last.q, 0));
}

TEST(OutlierError, IsThatOfTheElements) {
  const Tensor o = make_tensor(FA3_F16, {1, 2, 1, 2}), exact = make_tensor(FA3_F32, {1, 2, 1, 2});
  fill(o.view, 1);
  fill(exact.view, 1);
  set(exact.view, {0, 1, 0, 0}, 1.5);
  set(exact.view, {0, 1, 0, 1}, 0);
  Error error;
  error.add(o.view, exact.view);
  EXPECT_DOUBLE_EQ(error.rmse(), std::sqrt((0.25 + 1) / 4));
  EXPECT_EQ(error.greatest(), 1);
  set(o.view, {0, 0, 0, 0}, std::numeric_limits<double>::quiet_NaN());
  error.add(o.view, exact.view);
  EXPECT_TRUE(std::isnan(error.rmse()));
  EXPECT_TRUE(std::isnan(error.greatest()));
}

}  // namespace
}  // namespace fa3::verify
