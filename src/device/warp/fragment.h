// SPDX-License-Identifier: BSD-3-Clause
// fragment.h — which element of a matrix a register of a wgmma holds (PTX ISA 9.1, 9.7.15.5.1.1),
// and the orders in which FP8 operands may be permuted. `thread` counts within the warpgroup.
#pragma once

#include "device/types.h"

namespace fa3 {

struct Place {
  u32 row;
  u32 column;

  FA3_HD constexpr bool operator==(const Place& other) const {
    return row == other.row && column == other.column;
  }
};

// First of a thread's two rows of an accumulator or A operand; the other is 8 further on.
FA3_HD constexpr u32 fragment_row(u32 thread) { return 16 * (thread / 32) + thread % 32 / 4; }

// First of a thread's columns of an accumulator; the next is adjacent, the others 8, 16, … on.
FA3_HD constexpr u32 fragment_column(u32 thread) { return 2 * (thread % 4); }

// Register i of a 32-bit accumulator.
FA3_HD constexpr Place accumulator_place(u32 thread, u32 i) {
  return {fragment_row(thread) + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (thread % 4) + i % 2};
}

// Half `half` (0 = low) of register r of a 16-bit A operand; the column is that of K.
FA3_HD constexpr Place a16_place(u32 thread, u32 r, u32 half) {
  return {fragment_row(thread) + 8 * (r % 2), 8 * (r / 2) + 2 * (thread % 4) + half};
}

// Byte `byte` (0 = lowest) of register r of an 8-bit A operand.
FA3_HD constexpr Place a8_place(u32 thread, u32 r, u32 byte) {
  return {fragment_row(thread) + 8 * (r % 2), 16 * (r / 2) + 4 * (thread % 4) + byte};
}

// What slot k of an FP8 GEMM's K holds when each thread packs the accumulators it has, without
// exchanging any: it pairs with K row sigma(k) of the other operand. Within groups of 16.
FA3_HD constexpr u32 sigma(u32 k) { return (k & ~15u) + 8 * (k / 2 % 2) + 2 * (k / 4 % 4) + k % 2; }

// What row n of an FP8 operand transposed through registers holds: source column tau(n). Rows are
// stored in this order because it has no bank conflicts. Within groups of 16.
FA3_HD constexpr u32 tau(u32 n) { return (n & ~15u) + (n & 6) + 8 * (n % 2) + n / 8 % 2; }

// The row that holds source column d.
FA3_HD constexpr u32 tau_inverse(u32 d) { return (d & ~15u) + 8 * (d % 2) + (d & 6) + d / 8 % 2; }

}  // namespace fa3
