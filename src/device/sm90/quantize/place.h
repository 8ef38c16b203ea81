// SPDX-License-Identifier: BSD-3-Clause
// place.h — which rows of which tensors a CTA of the quantising kernels has.
#pragma once

#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/sm90/quantize/args.h"

namespace fa3::sm90 {

// The sequence and the head of a CTA: heads, whose rows are neighbours in memory, lie along x of
// the grid, parts of the rows along y, sequences along z; with cu_seqlens one more, of the rows
// behind the last, none of which counts. A second pass over x goes backwards, from what the L2
// cache still has of the first.
struct QuantizePlace {
  i32 b, head;
  i32 ctas, cta;  // of the rows, and which this is
  SequenceRows rows;

  FA3_DEV explicit QuantizePlace(const QuantizeArgs& args, bool backwards = false)
      : b(static_cast<i32>(ptx::block_index_z())),
        head(static_cast<i32>(ptx::block_index_x())),
        ctas(static_cast<i32>(ptx::grid_dim_y())),
        cta(static_cast<i32>(ptx::block_index_y())) {
    if (backwards) {
      b = static_cast<i32>(ptx::grid_dim_z()) - 1 - b;
      head = static_cast<i32>(ptx::grid_dim_x()) - 1 - head;
      cta = ctas - 1 - cta;
    }
    rows = rows_of<true>(args.axis, args.batch, b);
  }

  FA3_DEV QuantizePlace(i32 sequence, i32 head_of_it, const SequenceRows& rows_of_it)
      : b(sequence), head(head_of_it), ctas(1), cta(0), rows(rows_of_it) {}

  // Of row i of the sequence.
  template <class T>
  FA3_DEV i64 at(const Strided<T>& tensor, i64 i) const {
    return b * tensor.batch + (rows.begin + i) * tensor.row + head * tensor.head;
  }
};

// Which rows a CTA turns: `turns` times as many as it holds, then those `step` rows further on.
struct RowWalk {
  i32 start, step, turns, rows;

  // The first row of turn n.
  FA3_DEV i32 first(i32 n) const { return start + n / turns * step + n % turns * rows; }
};

// The row of the tables for the first row of sequence b, and for row i. Positions in device memory
// may be wrong, and lengths with them.
FA3_DEV i64 first_position(const QuantizeArgs& args, i32 b) {
  return args.position == nullptr ? 0 : ptx::ld_global_nc(args.position + b);
}
FA3_DEV i64 position_of(const QuantizeArgs& args, i64 first, i32 i) {
  return min(max(first + i, i64{0}), i64{args.positions} - 1);
}

}  // namespace fa3::sm90
