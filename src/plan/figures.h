// SPDX-License-Identifier: BSD-3-Clause
// figures.h — numbers of a plan as JSON: counts that may exceed 64 bits, estimates of three digits.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/json.h"

namespace fa3 {

// An integer as long as a double holds it exactly.
inline Json count(double n) { return n < 0x1p53 ? Json(static_cast<int64_t>(n)) : Json(n); }

// Three digits, or a whole number: an estimate has no more precision.
inline Json rounded(double x) {
  if (!(x > 0)) return 0;
  const double per_unit = std::pow(10, 2 - std::min(2., std::floor(std::log10(x))));
  const double value = std::round(x * per_unit) / per_unit;
  return value == std::floor(value) ? count(value) : Json(value);
}

}  // namespace fa3
