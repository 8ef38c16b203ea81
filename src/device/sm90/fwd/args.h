// SPDX-License-Identifier: BSD-3-Clause
// args.h — what a launch of the forward kernel takes in addition to its configuration.
#pragma once

#include "device/attn/tile_order.h"
#include "device/attn/tile_range.h"
#include "device/tensor_map.h"
#include "device/types.h"
#include "device/warp/element.h"

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

// Where the rows of each sequence lie in the queries, or in keys and values, and how many count.
// Values in device memory may be wrong: every use clamps them to the tensor.
struct FwdAxis {
  const i32* cu_seqlens;  // varlen: batch + 1 entries; else null
  const i32* seqused;     // or null
  i32 rows;               // dense: of each sequence; varlen: of all
  i32 batch_rows;         // dense and ragged: from one sequence's first row to the next one's
};

struct FwdArgs {
  // Dimensions {head_dim, row, head, sequence}; ragged {head_dim, x, y, z, head}.
  TensorMap q, k, v, o;
  float* lse;                        // or null
  i64 lse_row, lse_head, lse_batch;  // strides in elements
  u32* next_tile;                    // 0 at the start; nullptr: CTA i takes tiles i, i + grid, …
  FwdAxis q_axis, kv_axis;
  i32 batch, heads_q, group_size;  // group_size: query heads per KV head
  Band32 band;
  float score_factor;  // of ScoreFunction
  float scale_log2;    // of RowSoftmax
  TileOrder order;     // of tiles of tile_q() rows; varlen queries: of the longest sequence
  ElementArgs elements;
};

}  // namespace fa3::sm90
