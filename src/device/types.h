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
template <class T>
struct Range {
  T lo = 0;
  T hi = 0;

  FA3_HD constexpr bool empty() const { return lo >= hi; }
  FA3_HD constexpr T size() const { return lo < hi ? hi - lo : 0; }
};
using IndexRange = Range<i64>;

// Of integers, also of two widths: the wider one.
template <class A, class B>
FA3_HD constexpr auto min(A a, B b) {
  return a < b ? a : b;
}
template <class A, class B>
FA3_HD constexpr auto max(A a, B b) {
  return a > b ? a : b;
}
FA3_HD constexpr i32 clamp(i32 value, i32 lo, i32 hi) { return min(max(value, lo), hi); }
FA3_HD constexpr i64 div_up(i64 a, i64 b) { return (a + b - 1) / b; }
FA3_HD constexpr i64 round_up(i64 a, i64 b) { return div_up(a, b) * b; }
FA3_HD constexpr i64 round_down(i64 a, i64 b) { return a / b * b; }

template <class T>
FA3_HD constexpr Range<T> intersect(Range<T> a, Range<T> b) {
  return {max(a.lo, b.lo), min(a.hi, b.hi)};
}

}  // namespace fa3
