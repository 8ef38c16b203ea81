// SPDX-License-Identifier: BSD-3-Clause
// kv_cache.h — keys and values in a cache: in pages that a table names, in slots, or from any row
// of packed tensors on.
#pragma once

#include "device/ptx/memory.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

// K or V: where rows lie, counted in steps, of which a page or slot and a row have whole numbers.
struct KvPlaces {
  i32 entry, row;  // steps from one to the next
  // For threads that copy rows.
  const u8* data;
  i32 step;     // bytes
  i64 head;     // bytes from a head to the next
  u32 columns;  // of the tensor, a multiple of 8
};

// Values in device memory may be wrong: keys in entries that do not exist are hidden, and not read.
struct KvCacheArgs {
  const i32* page_table;  // (batch, max_pages); null: a sequence lies in one entry,
  const i32* slots;       // which this names, or null: sequence b in entry b
  const i32* begins;      // the row of a sequence's first key; or null: 0
  i32 entries;            // of k and v
  i32 page_size, max_pages;
  i32 page_log2;  // −1: page_size is no power of two
  i32 run;        // keys that are loaded at a time, a divisor of a tile's
  i32 runs;       // of a tile
  i32 tiles;      // whose runs a warp looks up at once

  FA3_DEV bool has(i32 entry) const { return entry >= 0 && entry < entries; }
  // The keys of sequence b. begin: the row of the first in its entry, or in its pages.
  FA3_DEV SequenceRows rows_of(const RowAxis& axis, i32 b) const {
    SequenceRows rows{0, axis.rows, axis.rows};
    if (begins != nullptr) {
      rows.begin = clamp(ptx::ld_global_nc(begins + b), 0, axis.rows);
      rows.rows -= rows.begin;
    }
    rows.used = rows.rows;
    if (axis.seqused != nullptr)
      rows.used = clamp(ptx::ld_global_nc(axis.seqused + b), 0, rows.rows);
    if (slots != nullptr && !has(ptx::ld_global_nc(slots + b))) rows.used = 0;
    return rows;
  }
  // The entry of row `row` of sequence b, if it exists.
  FA3_DEV i32 entry_of(i32 b, i32 row) const {
    if (page_table == nullptr) return slots == nullptr ? b : ptx::ld_global_nc(slots + b);
    return ptx::ld_global_nc(page_table + i64{b} * max_pages + page_of(row));
  }
  FA3_DEV i32 row_of(i32 row) const {
    return page_table == nullptr ? row : row - page_of(row) * page_size;
  }
  // A division takes longer than the loads that wait for it.
  FA3_DEV i32 page_of(i32 row) const { return page_log2 >= 0 ? row >> page_log2 : row / page_size; }
};

}  // namespace fa3::sm90
