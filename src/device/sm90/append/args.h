// SPDX-License-Identifier: BSD-3-Clause
// args.h — what a launch of the kernel that appends to a cache takes.
#pragma once

#include "device/divider.h"
#include "device/sm90/common/kv_cache.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

// Element (batch entry, row, head, column) lies at data + entry·batch + row·row + head·head +
// column.
struct AppendTensor {
  u8* data;
  i64 batch, row, head;
};

// Rows of a tensor that are rotated or copied, in pieces of a row of a head.
struct AppendRows {
  AppendTensor from, to;
  i32 heads;
  i32 rotated;     // pairs of columns that are rotated, the first ones of a row
  i32 copied;      // columns behind these
  Divider pieces;  // of a row of a head
  Divider warps;   // of a row of all heads
  Divider rows;    // dense: of each sequence
  u32 tasks;       // rows of all sequences times warps
};

struct AppendTable {
  const u8* cosines;
  const u8* sines;
  i64 cosine_row, sine_row;  // elements from one position to the next
  i32 positions;
  const i32* first;  // of sequences: the position of the first new row; null: its key
  bool pairs;        // columns 2i and 2i + 1 are a pair, not i and i + rotated
};

struct AppendArgs {
  AppendRows k, v, q;
  RowAxis fresh, queries, keys;  // of k_new and v_new, of q, and of k and v before
  KvCacheArgs cache;
  AppendTable table;
  i32* lengths;  // (batch): of keys afterwards
  i32 batch;
  i32 groups;  // of 32 pieces of a row that a warp has
  i32 most;    // keys of a sequence
  bool moves;  // each query has the position behind the one before, not all the same
  bool wide;   // all pieces are whole, and begin at multiples of 16 bytes
};

}  // namespace fa3::sm90
