// SPDX-License-Identifier: BSD-3-Clause
// numbers.h — the narrow number formats, straight from their definitions: a code's value, and the
// code nearest to a value by searching all of them. Slow, and independent of the conversions that
// the library and the simulator use.
#pragma once

#include <cstdint>

namespace fa3::selftest {

struct Format {
  int exponent_bits, mantissa_bits;
  uint32_t nan;         // the code that a conversion of NaN gives
  uint32_t max_finite;  // largest finite code
  bool saturates;       // what is larger becomes max_finite, not Inf

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
};

inline constexpr Format kF16{5, 10, 0x7FFF, 0x7BFF, false};
inline constexpr Format kBf16{8, 7, 0x7FFF, 0x7F7F, false};
inline constexpr Format kTf32{8, 10, 0x3FFFF, 0x3FBFF, false};  // the upper 19 bits of an f32
inline constexpr Format kE4m3{4, 3, 0x7F, 0x7E, true};
inline constexpr Format kE5m2{5, 2, 0x7F, 0x7B, true};

// The value of a code; codes above max_finite are Inf or NaN.
double decode(const Format& format, uint32_t code);

// The nearest code, ties to the even one; overflow as the format says.
uint32_t encode(const Format& format, double value);

}  // namespace fa3::selftest
