// SPDX-License-Identifier: BSD-3-Clause
// dtype_test.cpp — conversions of F16 and BF16: every bit pattern, ties, and random doubles.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace fa3 {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The value of bits by the definition of the format.
double value_of(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int field = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;
  if (field == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * kInf;
  if (field == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + fraction, field - bias - mantissa_bits);
}

template <class T>
struct Format;
template <>
struct Format<F16> {
  static constexpr int kExponent = 5, kMantissa = 10;
};
template <>
struct Format<Bf16> {
  static constexpr int kExponent = 8, kMantissa = 7;
};

template <class T>
double value_of(uint32_t bits) {
  return value_of(bits, Format<T>::kExponent, Format<T>::kMantissa);
}

template <class T>
constexpr uint32_t kInfBits = ((1u << Format<T>::kExponent) - 1) << Format<T>::kMantissa;

// Non-negative finite values by bits, and after them the value of Inf when rounding: the next
// power of two.
template <class T>
std::vector<double> ladder() {
  std::vector<double> values;
  for (uint32_t bits = 0; bits < kInfBits<T>; ++bits) values.push_back(value_of<T>(bits));
  values.push_back(2 * value_of<T>(kInfBits<T> - (1u << Format<T>::kMantissa)));
  return values;
}

// Nearest by search in the ladder; ties to the even bits.
template <class T>
uint32_t nearest_bits(const std::vector<double>& values, double x) {
  const double magnitude = std::abs(x);
  const uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  if (magnitude >= values.back()) return sign | kInfBits<T>;
  const auto above = std::upper_bound(values.begin(), values.end(), magnitude);
  const auto high = static_cast<uint32_t>(above - values.begin()), low = high - 1;
  const double to_low = magnitude - values[low], to_high = values[high] - magnitude;
  if (to_low == to_high) return sign | (low % 2 == 0 ? low : high);
  return sign | (to_low < to_high ? low : high);
}

template <class T>
class DtypeConversion : public ::testing::Test {};
using Types = ::testing::Types<F16, Bf16>;
TYPED_TEST_SUITE(DtypeConversion, Types);

TYPED_TEST(DtypeConversion, EveryPattern_WidensExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const TypeParam x{static_cast<uint16_t>(bits)};
    const double expected = value_of<TypeParam>(bits);
    const float wide = to_float(x);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_EQ(std::signbit(wide), bits >> 15 != 0) << bits;
      // Quiet, with the payload kept.
      const uint32_t quiet = bits | 1u << (Format<TypeParam>::kMantissa - 1);
      ASSERT_EQ(from_double<TypeParam>(wide).bits, quiet) << bits;
    } else {
      ASSERT_EQ(wide, expected) << bits;
      ASSERT_EQ(std::signbit(wide), bits >> 15 != 0) << bits;
      ASSERT_EQ(from_double<TypeParam>(wide).bits, bits);
    }
  }
}

TYPED_TEST(DtypeConversion, BetweenNeighbours_TiesGoToEven) {
  const std::vector<double> values = ladder<TypeParam>();
  for (uint32_t bits = 0; bits < kInfBits<TypeParam>; ++bits) {
    const double low = values[bits], high = values[bits + 1], middle = (low + high) / 2;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const double sign : {1.0, -1.0}) {
      const uint32_t minus = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(from_double<TypeParam>(sign * middle).bits, minus | even) << bits;
      // One ulp of double next to the tie: via float these would be mistaken for ties.
      ASSERT_EQ(from_double<TypeParam>(sign * std::nextafter(middle, 0)).bits, minus | bits);
      ASSERT_EQ(from_double<TypeParam>(sign * std::nextafter(middle, kInf)).bits,
                minus | (bits + 1));
    }
  }
}

TYPED_TEST(DtypeConversion, RandomDoubles_RoundToNearest) {
  const std::vector<double> values = ladder<TypeParam>();
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    // Any bit pattern, then one whose exponent the format can nearly hold.
    const uint64_t bits = random();
    const double any = std::bit_cast<double>(bits);
    const double near = std::ldexp(1 + static_cast<double>(bits >> 12) * 0x1p-52,
                                   static_cast<int>(bits % 300) - 160);
    for (const double x : {any, near, -near}) {
      if (std::isnan(x)) continue;
      ASSERT_EQ(from_double<TypeParam>(x).bits, nearest_bits<TypeParam>(values, x)) << x;
    }
  }
}

TYPED_TEST(DtypeConversion, Extremes_AsIeee754) {
  const uint32_t inf = kInfBits<TypeParam>;
  for (const double huge : {kInf, std::numeric_limits<double>::max(), 0x1p128, 0x1p1023}) {
    EXPECT_EQ(from_double<TypeParam>(huge).bits, inf);
    EXPECT_EQ(from_double<TypeParam>(-huge).bits, 0x8000 | inf);
  }
  for (const double tiny : {0.0, std::numeric_limits<double>::denorm_min(), 0x1p-1022, 0x1p-200}) {
    EXPECT_EQ(from_double<TypeParam>(tiny).bits, 0);
    EXPECT_EQ(from_double<TypeParam>(-tiny).bits, 0x8000);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(to_float(from_double<TypeParam>(nan))));
  EXPECT_TRUE(std::signbit(to_float(from_double<TypeParam>(std::copysign(nan, -1)))));
  // A payload that lies below the kept bits alone must not turn NaN into Inf.
  const double low_payload = std::bit_cast<double>(uint64_t{0x7ff0000000000001});
  EXPECT_TRUE(std::isnan(to_float(from_double<TypeParam>(low_payload))));
}

TEST(Dtype, SizesAndNames_AreThoseOfTheHeader) {
  EXPECT_EQ(dtype_bytes(FA3_DTYPE_NONE), 0);
  EXPECT_EQ(dtype_bytes(FA3_F32), 4);
  EXPECT_EQ(dtype_bytes(FA3_F16), 2);
  EXPECT_EQ(dtype_bytes(FA3_BF16), 2);
  EXPECT_EQ(dtype_bytes(FA3_I32), 4);
  EXPECT_EQ(dtype_bytes(FA3_F8_E4M3), 1);
  EXPECT_EQ(dtype_bytes(FA3_F8_E5M2), 1);
  EXPECT_EQ(dtype_bytes(99), 0);
  EXPECT_STREQ(dtype_name(FA3_BF16), "bf16");
  EXPECT_STREQ(dtype_name(-1), "unknown");
}

// Each code of E4M3 by the format's definition (OCP 8-bit floating point, 5.2).
TEST(Dtype, E4m3_IsDecodedByItsDefinition) {
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const float value = to_float(F8E4m3{static_cast<uint8_t>(bits)});
    if ((bits & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(value)) << bits;
    else
      EXPECT_EQ(value, static_cast<float>(bits & 0x80 ? -magnitude : magnitude)) << bits;
    EXPECT_EQ(std::signbit(value), (bits & 0x80) != 0) << bits;
  }
}

// Every value of E4M3 and every middle of two neighbours, and what lies just beside them.
TEST(Dtype, E4m3_IsRoundedToNearestEven) {
  const auto code_of = [](double x) { return int{from_double<F8E4m3>(x).bits}; };
  for (int code = 0; code < 0x7e; ++code) {
    const double value = to_float(F8E4m3{static_cast<uint8_t>(code)});
    const double next = to_float(F8E4m3{static_cast<uint8_t>(code + 1)});
    const double middle = (value + next) / 2;
    for (const int sign : {0, 0x80}) {
      const double s = sign == 0 ? 1 : -1;
      EXPECT_EQ(code_of(s * value), sign | code);
      EXPECT_EQ(code_of(s * middle), sign | (code + code % 2));
      EXPECT_EQ(code_of(s * std::nextafter(middle, 0)), sign | code);
      EXPECT_EQ(code_of(s * std::nextafter(middle, 1000)), sign | (code + 1));
    }
  }
  EXPECT_EQ(code_of(449), 0x7e);
  EXPECT_EQ(code_of(-INFINITY), 0xfe);
  EXPECT_EQ(code_of(1e-300), 0);
  EXPECT_EQ(code_of(NAN) & 0x7f, 0x7f);
}

}  // namespace
}  // namespace fa3
