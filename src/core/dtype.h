// SPDX-License-Identifier: BSD-3-Clause
// dtype.h — element types: sizes, names, and scalar conversions of F16 and BF16.
//
// To a wider type every conversion is exact. To a narrower one it rounds to nearest, ties to even,
// once: also from double, never by way of float. What overflows becomes Inf, subnormals are kept,
// NaN stays NaN (sign and the top of the payload kept, quiet).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fa3/fa3.h"

namespace fa3 {

// Bytes of one element; 0 for FA3_DTYPE_NONE and for numbers that are no fa3_dtype.
constexpr int64_t dtype_bytes(int32_t dtype) {
  switch (dtype) {
    case FA3_F64:
      return 8;
    case FA3_F32:
    case FA3_I32:
      return 4;
    case FA3_F16:
    case FA3_BF16:
      return 2;
    case FA3_F8_E4M3:
    case FA3_F8_E5M2:
    case FA3_I8:
    case FA3_BOOL:
      return 1;
    default:
      return 0;
  }
}

constexpr const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case FA3_DTYPE_NONE:
      return "none";
    case FA3_F32:
      return "f32";
    case FA3_F16:
      return "f16";
    case FA3_BF16:
      return "bf16";
    case FA3_I32:
      return "i32";
    case FA3_F8_E4M3:
      return "f8_e4m3";
    case FA3_F8_E5M2:
      return "f8_e5m2";
    case FA3_I8:
      return "i8";
    case FA3_F64:
      return "f64";
    case FA3_BOOL:
      return "bool";
    default:
      return "unknown";
  }
}

// The bits of one 16-bit element in memory.
struct F16 {
  uint16_t bits;  // 1 sign, 5 exponent, 10 mantissa
};
struct Bf16 {
  uint16_t bits;  // 1 sign, 8 exponent, 7 mantissa
};

// One 8-bit float: 1 sign, 4 exponent (bias 7), 3 mantissa. No Inf, so that what overflows becomes
// ±448; NaN is S.1111.111.
struct F8E4m3 {
  uint8_t bits;
};

constexpr bool is_8_bit(int32_t dtype) { return dtype == FA3_F8_E4M3 || dtype == FA3_I8; }

constexpr float to_float(int8_t x) { return x; }
constexpr float to_float(F8E4m3 x) {
  const uint32_t magnitude = x.bits & 0x7fu;
  const uint32_t sign = uint32_t{x.bits & 0x80u} << 24;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  // As for F16 below: the exponent is too small by 127 − 7.
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}
constexpr float to_float(float x) { return x; }
constexpr float to_float(Bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
constexpr float to_float(F16 x) {
  const uint32_t magnitude = x.bits & 0x7fffu;
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  if (magnitude >= 0x7c00u)  // Inf, NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Read as a float the exponent is too small by 127 − 15. The multiplication is exact, also for
  // subnormals.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// double → a format of kExponentBits and kMantissaBits (sign on top, exponent bias as in IEEE 754).
template <int kExponentBits, int kMantissaBits>
constexpr uint32_t round_to_bits(double x) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr uint32_t kInf = ((1u << kExponentBits) - 1) << kMantissaBits;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << (kExponentBits + kMantissaBits);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;  // of the value; 1024: Inf, NaN
  const uint64_t fraction = magnitude & ((uint64_t{1} << 52) - 1);
  if (exponent == 1024 && fraction != 0)
    return sign | kInf | 1u << (kMantissaBits - 1) |
           static_cast<uint32_t>(fraction >> (52 - kMantissaBits));
  if (exponent > kBias) return sign | kInf;
  // Below half the smallest subnormal all is lost; this takes double's own subnormals with it.
  if (exponent < -kBias - kMantissaBits) return sign;

  // significand · 2^−shift counts units in the last place of the result: fewer for subnormals.
  const int below_normal = exponent < 1 - kBias ? 1 - kBias - exponent : 0;
  const int shift = 52 - kMantissaBits + below_normal;
  const uint64_t significand = fraction | uint64_t{1} << 52;
  const uint64_t half = uint64_t{1} << (shift - 1);
  uint64_t units = significand >> shift;
  const uint64_t rest = significand & (2 * half - 1);
  if (rest > half || (rest == half && (units & 1) != 0)) ++units;
  // The leading 1 of a normal number adds 1 to the exponent field, and so does a carry of the
  // rounding: into the first normal number from the subnormals, into Inf from the largest finite
  // one.
  const uint32_t exponent_field =
      below_normal != 0 ? 0u : static_cast<uint32_t>(exponent + kBias - 1);
  return sign | ((exponent_field << kMantissaBits) + static_cast<uint32_t>(units));
}

template <class T>
constexpr T from_double(double x);
template <>
constexpr float from_double<float>(double x) {
  return static_cast<float>(x);
}
template <>
constexpr F16 from_double<F16>(double x) {
  return {static_cast<uint16_t>(round_to_bits<5, 10>(x))};
}
template <>
constexpr Bf16 from_double<Bf16>(double x) {
  return {static_cast<uint16_t>(round_to_bits<8, 7>(x))};
}
template <>
constexpr F8E4m3 from_double<F8E4m3>(double x) {
  const bool negative = std::bit_cast<uint64_t>(x) >> 63 != 0;
  const double magnitude = negative ? -x : x;
  const uint32_t sign = negative ? 0x80u : 0u;
  if (x != x) return {static_cast<uint8_t>(sign | 0x7fu)};
  if (magnitude >= 448) return {static_cast<uint8_t>(sign | 0x7eu)};
  // The top binade, where IEEE 754 has Inf and NaN, by its half.
  if (magnitude >= 240) return {static_cast<uint8_t>(round_to_bits<4, 3>(x / 2) + 8)};
  return {static_cast<uint8_t>(round_to_bits<4, 3>(x))};
}

}  // namespace fa3
