// SPDX-License-Identifier: BSD-3-Clause
// fixed_test.cpp — dQ's integers: their scales, and the words that are added.
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

// What an element adds, in units of a row with that scale.
double units_of(float x, float scale) {
  const float fixed = to_fixed(x, fixed_factor(scale));
  const u32 word =
      fixed_fits(ptx::bits_as<u32>(fixed)) ? ptx::bits_as<u32>(fixed) : word_of_fixed(fixed);
  return static_cast<double>(from_fixed(word, 1, fixed_unit(scale))) * static_cast<double>(scale);
}

TEST(BwdFixed, AWordIsTheNearestInteger) {
  verify::Random random(7);
  for (int exponent = -40; exponent <= 28; ++exponent) {
    SCOPED_TRACE(exponent);
    for (const float scale : {1.f, 0x1p10f, 0x1p-100f, 0x1p126f}) {
      for (int n = 0; n < 50; ++n) {
        const double exact = std::ldexp(random.normal() / 8, exponent);
        const auto x = static_cast<float>(exact / static_cast<double>(scale));
        if (std::abs(x) < 0x1p-126f) continue;
        // As FP32 has it: both, and kOffPower.
        EXPECT_NEAR(units_of(x, scale), exact, 0.5001 + std::abs(exact) * 0x1p-21) << x;
      }
    }
  }
  for (const float x : {0.f, 0.25f, 1.f, -1.f, 2047.f, -4096.f, 0x1p21f, -0x1p21f}) {
    EXPECT_FLOAT_EQ(static_cast<float>(units_of(x, 1)), std::nearbyint(x));
  }
}

// Bits of what is out of range look like those of no number in it, also where the sum with
// kFixedZero cancels.
TEST(BwdFixed, WhatDoesNotFitIsSeen) {
  i64 wrong = 0;
  for (u32 bits = 0; bits < (3u << 23); ++bits) {
    // 2^22 … 2^25 units, of either sign.
    const float x = ptx::bits_as<float>((127u + 22u) * (1u << 23) + bits);
    for (const float signed_x : {x, -x}) {
      const float fixed = to_fixed(signed_x, fixed_factor(1));
      const bool fits = fixed >= 2 && fixed < 4;
      wrong += fixed_fits(ptx::bits_as<u32>(fixed)) != fits;
      wrong += fits && x > 0x1p22f;
    }
  }
  EXPECT_EQ(wrong, 0);
  for (const float x : {kInfinity, -kInfinity, kNan, 3e38f, -3e38f, 0x1p40f, -0x1p40f})
    EXPECT_FALSE(fixed_fits(ptx::bits_as<u32>(to_fixed(x, fixed_factor(1))))) << x;
}

TEST(BwdFixed, WordsAddUp) {
  verify::Random random(3);
  double exact = 0;
  u32 sum = 0;
  constexpr u32 kWords = 1000;
  for (u32 n = 0; n < kWords; ++n) {
    const double units = std::nearbyint(random.normal() * 0x1p19);
    exact += units;
    sum += ptx::bits_as<u32>(to_fixed(static_cast<float>(units), fixed_factor(1)));
  }
  EXPECT_NEAR(static_cast<double>(from_fixed(sum, kWords, 1)), exact, kWords / 2.0);
}

TEST(BwdFixed, IntegersEndWhereTheyEnd) {
  EXPECT_EQ(ptx::f32_to_i32(kNan), 0);
  EXPECT_EQ(ptx::f32_to_i32(3e9f), std::numeric_limits<i32>::max());
  EXPECT_EQ(ptx::f32_to_i32(-kInfinity), std::numeric_limits<i32>::min());
  EXPECT_EQ(ptx::f32_to_i32(2.5f), 2);
}

}  // namespace
}  // namespace fa3::sm90
