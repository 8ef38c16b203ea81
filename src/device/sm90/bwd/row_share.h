// SPDX-License-Identifier: BSD-3-Clause
// row_share.h — the kernels before the backward's main one read rows of two tensors once: what a
// thread has of them it copies to shared memory of its own, all before it waits for any. Held in
// registers, the same loads would halve the CTAs that fit an SM.
#pragma once

#include "device/ptx/async_copy.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/vec.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/config.h"
#include "device/sm90/bwd/tensor.h"

namespace fa3::sm90 {

// Of kRows rows of kColumns, one in each turn, eight columns of 16 bits at a time.
template <i32 kRows, i32 kColumns>
struct RowShare {
  static constexpr i32 kLanes = row_lanes(kColumns);  // of a row
  static constexpr i32 kRowsPerTurn = kBwdRowThreads / kLanes, kTurns = kRows / kRowsPerTurn;
  static constexpr i32 kParts = kColumns / 8 / kLanes;  // of a row, that one thread has
  static_assert(kRows % kRowsPerTurn == 0 && kColumns % (8 * kLanes) == 0,
                "RowShare: rows in whole turns, columns in whole parts");

  ptx::Vec<u32, 4> eights[kTurns * kParts][kBwdRowThreads];

  FA3_DEV static i32 thread() { return static_cast<i32>(ptx::thread_index()); }
  FA3_DEV static i32 lane() { return thread() % kLanes; }
  // Of a turn, from the first of all rows on.
  FA3_DEV static i32 row(i32 turn) { return kRowsPerTurn * turn + thread() / kLanes; }
  FA3_DEV static i32 column(i32 part) { return 8 * (lane() + kLanes * part); }

  // Of a tensor of 16 bits whose first row is at element `first`; zeros from row `rows` and column
  // `columns` on.
  FA3_DEV void copy(const BwdTensor& from, i64 first, i32 rows, i32 columns) {
    FA3_UNROLL
    for (i32 turn = 0; turn < kTurns; ++turn) {
      FA3_UNROLL
      for (i32 part = 0; part < kParts; ++part) {
        const bool there = row(turn) < rows && column(part) < columns;
        const i64 at = there ? first + row(turn) * from.row + column(part) : 0;
        ptx::cp_async_16(ptx::smem_address(&eights[kParts * turn + part][thread()]),
                         static_cast<const u16*>(from.data) + at, there ? 16 : 0);
      }
    }
  }
  // For all that this thread has copied, also to other shares.
  FA3_DEV static void wait() { ptx::cp_async_wait_all(); }
  template <MmaType kType>
  FA3_DEV void read(i32 turn, i32 part, float (&to)[8]) const {
    unpack_eight<kType>(ptx::ld_shared(&eights[kParts * turn + part][thread()]), to);
  }
};

}  // namespace fa3::sm90
