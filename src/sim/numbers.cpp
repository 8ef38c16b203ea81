// SPDX-License-Identifier: BSD-3-Clause
// numbers.cpp — conversions and approximations as sm_90 does them.
#include "sim/numbers.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/dtype.h"

namespace fa3::sim {
namespace {

thread_local u32 exponentials = 0;

constexpr u32 kNan16 = 0x7FFF;  // cvt gives the canonical NaN
const float kNan32 = std::bit_cast<float>(0x7FFFFFFFu);

float flush(float x) {
  return std::bit_cast<u32>(x) & 0x7F800000u
             ? x
             : std::bit_cast<float>(std::bit_cast<u32>(x) & 0x80000000u);
}

u32 to_bf16(float x) {
  const u32 bits = std::bit_cast<u32>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return kNan16;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

u32 to_f16(float x) {
  const u32 bits = std::bit_cast<u32>(x);
  const u32 magnitude = bits & 0x7FFFFFFFu;
  const u32 sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7F800000u) return kNan16;
  if (magnitude >= 0x47800000u) return sign | 0x7C00u;  // 65536 and beyond
  if (magnitude < 0x38800000u) {                        // below the normal numbers: steps of 2^-24
    // Adding 0.5 puts the last place of the sum at 2^-24, so that the sum rounds to even there.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | (std::bit_cast<u32>(shifted) - 0x3F000000u);
  }
  const u32 rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return sign | ((rounded - 0x38000000u) >> 13);
}

u32 to_e4m3(float x) {
  const float magnitude = std::fabs(x);
  const u32 sign = std::signbit(x) ? 0x80u : 0;
  if (std::isnan(x)) return 0x7F;
  if (magnitude >= 448.f) return sign | 0x7E;
  if (magnitude >= 256.f)  // the top exponent, which has no Inf
    return sign | (0x70u + static_cast<u32>(std::nearbyint(magnitude / 32.f)));
  return round_to_bits<4, 3>(x);
}

u32 to_e5m2(float x) {
  const u32 sign = std::signbit(x) ? 0x80u : 0;
  if (std::isnan(x)) return 0x7F;
  if (std::fabs(x) >= 57344.f) return sign | 0x7B;
  return round_to_bits<5, 2>(x);
}

u32 f16_bits_of(float x) { return to_f16(x); }

template <float (*kDecode)(u8)>
u32 pair_to_f16(u16 bits) {
  const auto one = [](u8 byte) {
    const float value = kDecode(byte);
    return std::isnan(value) ? kNan16 : f16_bits_of(value);
  };
  return one(static_cast<u8>(bits)) | one(static_cast<u8>(bits >> 8)) << 16;
}

float bits_to_f32(u64 bits) { return std::bit_cast<float>(static_cast<u32>(bits)); }

}  // namespace

float e4m3_to_f32(u8 bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 0x7F) == 0x7F) value = std::bit_cast<float>(0x7FFFFFFFu);
  return bits & 0x80 ? -value : value;
}

float e5m2_to_f32(u8 bits) { return to_float(F16{static_cast<uint16_t>(bits << 8)}); }

u64 add_bits(u64 old, u64 operand, twin::ScalarType type) {
  using twin::ScalarType;
  switch (type) {
    case ScalarType::kU32:
    case ScalarType::kI32:
      return static_cast<u32>(old + operand);
    case ScalarType::kU64:
      return old + operand;
    case ScalarType::kF32:
      return std::bit_cast<u32>(flush(flush(bits_to_f32(old)) + flush(bits_to_f32(operand))));
    case ScalarType::kF16:
      return to_f16(to_float(F16{static_cast<uint16_t>(old)}) +
                    to_float(F16{static_cast<uint16_t>(operand)}));
    case ScalarType::kBf16:
      return to_bf16(to_float(Bf16{static_cast<uint16_t>(old)}) +
                     to_float(Bf16{static_cast<uint16_t>(operand)}));
  }
  return 0;
}

u32 bytes_of(twin::ScalarType type) {
  using twin::ScalarType;
  if (type == ScalarType::kU64) return 8;
  return type == ScalarType::kF16 || type == ScalarType::kBf16 ? 2 : 4;
}

void reduce_add(u8* to, const u8* from, u64 bytes, twin::ScalarType type) {
  const u32 size = bytes_of(type);
  for (u64 i = 0; i < bytes; i += size) {
    u64 old = 0, operand = 0;
    std::memcpy(&old, to + i, size);
    std::memcpy(&operand, from + i, size);
    const u64 sum = add_bits(old, operand, type);
    std::memcpy(to + i, &sum, size);
  }
}

u32 take_exponentials() { return std::exchange(exponentials, 0); }

}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

u32 pack_f16(float low, float high) { return to_f16(low) | to_f16(high) << 16; }
u32 pack_bf16(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
u32 pack_e4m3(float v0, float v1, float v2, float v3) {
  return to_e4m3(v0) | to_e4m3(v1) << 8 | to_e4m3(v2) << 16 | to_e4m3(v3) << 24;
}
u32 pack_e5m2(float v0, float v1, float v2, float v3) {
  return to_e5m2(v0) | to_e5m2(v1) << 8 | to_e5m2(v2) << 16 | to_e5m2(v3) << 24;
}
i32 f32_to_i32(float x) {
  if (!(x >= -0x1p31f)) return x < 0 ? INT32_MIN : 0;
  return x >= 0x1p31f ? INT32_MAX : static_cast<i32>(std::nearbyint(x));
}
float f16_to_f32(u16 bits) { return to_float(F16{bits}); }
float bf16_to_f32(u16 bits) { return to_float(Bf16{bits}); }
u32 e4m3x2_to_f16x2(u16 bits) { return pair_to_f16<e4m3_to_f32>(bits); }
u32 e5m2x2_to_f16x2(u16 bits) { return pair_to_f16<e5m2_to_f32>(bits); }

// Correctly rounded where the GPU is within 2 ulp; subnormal inputs and results are flushed.
float ex2(float x) {
  exponentials++;
  return flush(std::exp2(flush(x)));
}
float lg2(float x) { return std::log2(flush(x)); }
float rcp(float x) { return flush(1.f / flush(x)); }
float tanh(float x) { return std::tanh(x); }

// Equal numbers differ in the sign of zero at most.
float max(float a, float b) {
  if (a > b) return a;
  if (b > a) return b;
  if (a == b) return std::bit_cast<float>(std::bit_cast<u32>(a) & std::bit_cast<u32>(b));
  return std::isnan(a) ? (std::isnan(b) ? kNan32 : b) : a;
}
float min(float a, float b) {
  if (a < b) return a;
  if (b < a) return b;
  if (a == b) return std::bit_cast<float>(std::bit_cast<u32>(a) | std::bit_cast<u32>(b));
  return std::isnan(a) ? (std::isnan(b) ? kNan32 : b) : a;
}
float max_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? kNan32 : max(a, b); }

u32 prmt(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{b} << 32 | a;
  u32 out = 0;
  for (u32 i = 0; i < 4; i++) {
    const u32 pick = selector >> (4 * i) & 15;
    u32 byte = static_cast<u32>(bytes >> (8 * (pick & 7))) & 0xFF;
    if (pick & 8) byte = byte & 0x80 ? 0xFF : 0;  // the sign, replicated
    out |= byte << (8 * i);
  }
  return out;
}

}  // namespace fa3::twin
