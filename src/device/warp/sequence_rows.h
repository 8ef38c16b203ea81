// SPDX-License-Identifier: BSD-3-Clause
// sequence_rows.h — which rows of a tensor belong to a sequence, by lengths in device memory.
#pragma once

#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/types.h"

namespace fa3 {

// Where the rows of each sequence lie in the queries, or in keys and values, and how many count.
// Values in device memory may be wrong: every use clamps them to the tensor.
struct RowAxis {
  const i32* cu_seqlens;  // varlen: batch + 1 entries; else null
  const i32* seqused;     // or null
  i32 rows;               // dense: of each sequence; varlen: of all
  i32 batch_rows;         // dense and ragged: from one sequence's first row to the next one's
};

// Rows of one sequence: where they begin in the tensor, how many there are and how many count.
struct SequenceRows {
  i32 begin = 0;
  i32 rows = 0;
  i32 used = 0;
};

// Rows of sequence b. b = batch, varlen only: those after the last sequence; none count.
template <bool kRagged>
FA3_DEV SequenceRows rows_of(const RowAxis& axis, i32 batch, i32 b) {
  SequenceRows rows{b * axis.batch_rows, axis.rows, axis.rows};
  if constexpr (kRagged) {
    if (axis.cu_seqlens != nullptr) {
      rows.begin = clamp(ptx::ld_global_nc(axis.cu_seqlens + b), 0, axis.rows);
      const i32 end = b < batch ? ptx::ld_global_nc(axis.cu_seqlens + b + 1) : axis.rows;
      rows.rows = rows.used = clamp(end, rows.begin, axis.rows) - rows.begin;
    }
    if (b == batch) {
      rows.used = 0;
    } else if (axis.seqused != nullptr) {
      rows.used = clamp(ptx::ld_global_nc(axis.seqused + b), 0, rows.rows);
    }
  }
  return rows;
}

// The same for all lanes of a warp, of which one reads.
template <bool kRagged>
FA3_DEV SequenceRows rows_of_warp(const RowAxis& axis, i32 batch, i32 b,
                                  Where where = Where::here()) {
  if constexpr (!kRagged) return rows_of<false>(axis, batch, b);
  SequenceRows rows;
  if (ptx::lane_index() == 0) rows = rows_of<kRagged>(axis, batch, b);
  const auto of_first = [&where](i32 x) {
    return static_cast<i32>(ptx::shfl_idx(static_cast<u32>(x), 0, 32, ~0u, where));
  };
  return {of_first(rows.begin), of_first(rows.rows), of_first(rows.used)};
}

// The first row of a sequence for plain addressing, where a dense tensor has a batch stride.
FA3_DEV i32 first_row(const RowAxis& axis, const SequenceRows& rows) {
  return axis.cu_seqlens != nullptr ? rows.begin : 0;
}

}  // namespace fa3
