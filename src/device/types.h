// SPDX-License-Identifier: BSD-3-Clause
// types.h — fixed-width integers and small value types of device code, without host headers.
#pragma once

#include "device/target.h"

namespace fa3 {

using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// Half-open range [lo, hi) of row or key indices; empty when lo ≥ hi.
struct IndexRange {
  i64 lo = 0;
  i64 hi = 0;

  FA3_HD constexpr bool empty() const { return lo >= hi; }
  FA3_HD constexpr i64 size() const { return lo < hi ? hi - lo : 0; }
};

template <class T>
FA3_HD constexpr T min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
FA3_HD constexpr T max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
FA3_HD constexpr T clamp(T value, T lo, T hi) {
  return min(max(value, lo), hi);
}
FA3_HD constexpr i64 min_of(i64 a, i64 b) { return a < b ? a : b; }
FA3_HD constexpr i64 max_of(i64 a, i64 b) { return a > b ? a : b; }
FA3_HD constexpr i64 div_up(i64 a, i64 b) { return (a + b - 1) / b; }
FA3_HD constexpr i64 round_up(i64 a, i64 b) { return div_up(a, b) * b; }
FA3_HD constexpr i64 round_down(i64 a, i64 b) { return a / b * b; }

FA3_HD constexpr IndexRange intersect(IndexRange a, IndexRange b) {
  return {max_of(a.lo, b.lo), min_of(a.hi, b.hi)};
}

}  // namespace fa3
