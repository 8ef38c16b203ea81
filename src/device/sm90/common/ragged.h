// SPDX-License-Identifier: BSD-3-Clause
// ragged.h — how TMA sees tensors whose sequences have lengths of their own.
#pragma once

#include "device/types.h"

namespace fa3::sm90 {

// Rows of one sequence within a ragged tensor, where no dimension ends with it: two dimensions of
// equal stride, x and y, and a third that wraps the address around by 2^64 bytes.
//     x = kRaggedRows − rows + row,  y = begin + rows,  z = kRaggedRows
//     stride of z = kRaggedWrap − stride of x  ⇒  address of row begin + row; x ends with the rows
// So TMA itself fills loads beyond a sequence with zeros, and clips stores there.
// Where all lengths are equal, y may have another stride than x: rows · (stride of y − stride of x)
// is then subtracted from the base, and `begin` counts sequences.
inline constexpr i32 kRaggedRows = 1 << 30;
inline constexpr u64 kRaggedWrap = u64{1} << 34;

}  // namespace fa3::sm90
