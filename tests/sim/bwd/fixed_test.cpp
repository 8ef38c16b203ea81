// SPDX-License-Identifier: BSD-3-Clause
// fixed_test.cpp — dQ's integers: their scales, and both ways to make them.
#include "device/sm90/bwd/fixed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/verify/problem.h"

namespace fa3::sm90 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Keys whose bound, with ‖dO‖ = 1 and δ = 0, is as said.
KeyBound keys_of(float bound) {
  KeyBound keys;
  keys.take(bound, 1, true);
  return keys;
}

TEST(BwdFixed, AScaleMakesItsBoundAnEighthOfWhatWraps) {
  for (const float bound : {0x1p-90f, 0x1.8p-3f, 1.f, 1.5f, 3e7f, 0x1.fffffep100f}) {
    SCOPED_TRACE(bound);
    const float scale = scale_of_row<MmaType::kBf16>(keys_of(bound), 1, 0, 0);
    EXPECT_GE(bound * scale, 0x1p27f);
    EXPECT_LT(bound * scale, 0x1p28f);
    EXPECT_EQ(scale * fixed_unit(scale), 1);
  }
}

TEST(BwdFixed, AScaleIsANumberForEveryBound) {
  for (const float bound : {0.f, 1e-45f, 0x1p-126f, 0x1p-100f, 0x1p127f, kInfinity}) {
    SCOPED_TRACE(bound);
    const float scale = std::abs(scale_of_row<MmaType::kBf16>(keys_of(bound), 1, 0, 0));
    EXPECT_GT(scale, 0);
    EXPECT_LT(scale, kInfinity);
    EXPECT_EQ(scale * fixed_unit(scale), 1);
    if (bound < kInfinity) {
      EXPECT_LT(bound * scale, 0x1p28f);
    }
  }
}

TEST(BwdFixed, AScaleIsNegativeWhereSumsMayNotBeFinite) {
  const KeyBound keys = keys_of(1000);
  KeyBound odd = keys;
  odd.take(kNan, kNan, false);
  const auto of = [](const KeyBound& k, float dout, float delta, float lse) {
    return scale_of_row<MmaType::kF16>(k, dout, delta, lse);
  };
  EXPECT_GT(of(keys, 65, 100, 3), 0);
  EXPECT_LT(of(keys, 66, 0, 3), 0);  // dS may be more than F16 has
  EXPECT_GT(scale_of_row<MmaType::kBf16>(keys, 66, 0, 3), 0);
  EXPECT_LT(of(odd, 1, 1, 3), 0);
  EXPECT_EQ(of(odd, 1, 1, 3), -of(keys, 1, 1, 3));
  EXPECT_LT(of(keys, kNan, 0, 3), 0);
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    SCOPED_TRACE(bad);
    EXPECT_LT(of(keys, std::abs(bad), 0, 3), 0);
    EXPECT_LT(of(keys, 1, bad, 3), 0);
    EXPECT_LT(of(keys, 1, 0, bad), 0);
  }
}

TEST(BwdFixed, ANormIsNotLostInItsSquares) {
  EXPECT_NEAR(norm_of(9, 3), 3, 1e-5);
  EXPECT_GE(norm_of(0, 1e-30f), 1e-30f);
  EXPECT_GE(norm_of(kInfinity, 1e30f), 16e30f * 0.99f);
  EXPECT_LT(norm_of(kInfinity, 1e30f), kInfinity);
  EXPECT_GT(norm_of(0, 0), 0);
}

TEST(BwdFixed, BothWaysRoundToTheNearest) {
  verify::Random random(7);
  for (int exponent = -40; exponent <= 28; ++exponent) {
    for (int n = 0; n < 200; ++n) {
      const auto x = static_cast<float>(std::ldexp(random.normal() / 8, exponent - 10));
      const float scale = 0x1p10f;
      const double exact = std::ldexp(static_cast<double>(x), 10);
      if (std::abs(exact) > 0x1p30) continue;
      const auto one = static_cast<i32>(to_fixed(x, scale));
      const auto other = static_cast<i32>(to_fixed_by_fma(x, scale));
      EXPECT_LE(std::abs(one - exact), 0.5) << x;
      EXPECT_LE(std::abs(other - exact), 0.5) << x;
    }
  }
  for (const float x : {0.5f, 1.5f, 2.5f, -0.5f, 2047.5f, 2048.5f, -4096.f, 6144.f}) {
    EXPECT_LE(std::abs(static_cast<i32>(to_fixed(x, 1)) - x), 0.5);
    EXPECT_LE(std::abs(static_cast<i32>(to_fixed_by_fma(x, 1)) - x), 0.5);
  }
}

TEST(BwdFixed, IntegersEndWhereTheyEnd) {
  EXPECT_EQ(ptx::f32_to_i32(kNan), 0);
  EXPECT_EQ(ptx::f32_to_i32(3e9f), std::numeric_limits<i32>::max());
  EXPECT_EQ(ptx::f32_to_i32(-kInfinity), std::numeric_limits<i32>::min());
  EXPECT_EQ(ptx::f32_to_i32(2.5f), 2);
}

}  // namespace
}  // namespace fa3::sm90
