// SPDX-License-Identifier: BSD-3-Clause
// args.h — what the launches of a quantisation take in addition to their configuration.
#pragma once

#include "device/ptx/vec.h"
#include "device/tensor_map.h"
#include "device/types.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

// Element (b, i, h, c) lies at data + b·batch + i·row + h·head + c; of scales, i is a block of rows
// and c one of columns. Varlen x and codes: batch = 0, rows count from the tensor's first.
template <class T>
struct Strided {
  T* data;
  i64 batch, row, head;
};

inline constexpr int kMaxHeadDim = 256;

// Of the finite values of a few rows of y in one column: in units of the turner's.
struct alignas(16) ColumnSums {
  float sum, least, most;
  i32 count;
};

// Tiles of the kernel for rotated rows: groups of heads innermost, then parts of the rows of a
// sequence, then sequences.
struct RotatedGrid {
  i32 tiles;          // at most so many
  i32 parts;          // of a sequence; 0: as many as its rows need
  i32 groups, heads;  // of heads, and heads of a group
};

struct QuantizeArgs {
  // {head_dim, row, head, sequence}; with RotatedConfig::one_box()
  // {column, row, panel, head, sequence}.
  TensorMap x_map;
  Strided<const void> x;
  Strided<u8> codes;
  Strided<float> scale;
  Strided<float> offset;  // (batch, heads, head_dim) or null; row: not used
  RowAxis axis;
  i32 batch, heads;
  i32 most_rows;  // that a sequence may have, and scales for them

  Strided<const void> cosine, sine;  // row alone
  const i32* position;               // or null
  i32 positions;                     // rows of the tables

  i32 block_rows, blocks;  // of the scales along the rows; block_rows 0: one for all
  bool by_total_row;       // scales count rows from the tensor's first
  bool of_tensor;          // there is one scale
  u32* maxima;             // (batch, heads, blocks, blocks of columns): of |y − mean|, as bits
  bool to_i8;

  ColumnSums* sums;  // (batch, heads, chunks of kSumRows rows, head_dim)
  i32 chunks;
  u32* summed;  // (batch, heads): CTAs that have stored their sums
  RotatedGrid rotated;
  u32* taken;  // tiles, but for the first of each CTA; 0 before. Null: CTAs take them in turns.
  bool wide_codes;       // rows of codes begin at multiples of 16 bytes
  bool maxima_of_means;  // the kernel of the means finds the maxima, of heads or of the tensor

  float unit;                              // 1/√hadamard
  ptx::Vec<u32, 4> sign[kMaxHeadDim / 8];  // of a piece's columns, bit 15 of each half of a word
};

}  // namespace fa3::sm90
