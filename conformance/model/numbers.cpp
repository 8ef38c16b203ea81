// SPDX-License-Identifier: BSD-3-Clause
// numbers.cpp — decode from the definition, encode by binary search over the codes, whose values
// ascend.
#include "conformance/model/numbers.h"

#include <cmath>
#include <limits>

namespace fa3::selftest {

double decode(const Format& format, uint32_t code) {
  const uint32_t sign_bit = 1u << (format.bits() - 1);
  const double sign = (code & sign_bit) != 0 ? -1 : 1;
  const uint32_t magnitude = code & (sign_bit - 1);
  const uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  if (magnitude > format.max_finite) {
    const bool is_inf = !(format.exponent_bits == 4) && mantissa == 0;  // E4M3 has no Inf
    return is_inf ? sign * std::numeric_limits<double>::infinity()
                  : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign * std::ldexp((1u << format.mantissa_bits) + mantissa,
                           exponent - bias - format.mantissa_bits);
}

uint32_t encode(const Format& format, double value) {
  if (std::isnan(value)) return format.nan;
  const uint32_t sign = std::signbit(value) ? 1u << (format.bits() - 1) : 0;
  const double magnitude = std::fabs(value);
  // low: the largest finite code that is not above the magnitude.
  uint32_t low = 0, end = format.max_finite + 1;
  while (end - low > 1) {
    const uint32_t middle = (low + end) / 2;
    (decode(format, middle) <= magnitude ? low : end) = middle;
  }
  if (low == format.max_finite) {
    if (format.saturates) return sign | low;
    // Rounds to Inf from half a unit above the largest finite value on, the even neighbour.
    const double largest = decode(format, low);
    const double half_unit = (largest - decode(format, low - 1)) / 2;
    return sign | (magnitude >= largest + half_unit ? low + 1 : low);
  }
  const double below = magnitude - decode(format, low);
  const double above = decode(format, low + 1) - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return sign | (up ? low + 1 : low);
}

}  // namespace fa3::selftest
