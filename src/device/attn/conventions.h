// SPDX-License-Identifier: BSD-3-Clause
// conventions.h — numbers and rules that every kernel shares; the user's view of them is in fa3.h.
//   Scores live in the base-2 log domain inside kernels: p = exp2(s·scale_log2e − m·scale_log2e).
//   LSE leaves a kernel as FP32, natural logarithm. A row that sees no key: O = 0, LSE = −inf.
//   NaN in a visible score reaches its row: never write `x != x ? … : …`, and let max() keep a NaN
//     out of m only,
//   since p = exp2(NaN − m) brings it back.
#pragma once

#include "device/types.h"

namespace fa3 {

inline constexpr float kInf = __builtin_bit_cast(float, 0x7F800000u);
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

}  // namespace fa3
