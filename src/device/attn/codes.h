// SPDX-License-Identifier: BSD-3-Clause
// codes.h — what 8-bit codes reach, and the least that the values of a block count as.
#pragma once

#include "device/types.h"

namespace fa3 {

// The largest code: of E4M3 its largest value, of I8 that of a symmetric range.
inline constexpr float kLargestE4m3 = 448;
inline constexpr float kLargestI8 = 127;

// Below this the values of a block count as this large: its scale and its reciprocal stay normal
// numbers of FP32.
inline constexpr float kLeastAmax = 0x1p-100f;

}  // namespace fa3
