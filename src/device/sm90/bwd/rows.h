// SPDX-License-Identifier: BSD-3-Clause
// rows.h — the queries that see a key and the Q tiles that a KV tile visits: tile_range.h seen from
// the keys.
#pragma once

#include "device/attn/tile_range.h"

namespace fa3::sm90 {

// Queries of q_used that see key `key` of kv_used.
FA3_HD constexpr Range<i32> rows_of_key(Band32 band, i32 q_used, i32 kv_used, i32 key) {
  if (key >= kv_used) return {0, 0};
  const i32 first = kv_used - q_used;  // the position of query 0
  const i32 p = key - first;           // the query on whose diagonal it lies
  Range<i32> rows = {band.right == Band32::kUnbounded ? 0 : max(p - band.right, 0),
                     band.left == Band32::kUnbounded ? q_used : min(p + band.left + 1, q_used)};
  if (band.chunks.any()) {
    const Range<i32> chunk = band.chunk_of(key);
    rows = {max(rows.lo, chunk.lo - first), min(rows.hi, chunk.hi - first)};
  }
  return rows;
}

// Q tiles [first, end); in [unmasked_first, unmasked_end) every row counts and sees all keys of the
// KV tile. Keys [key, key + keys).
FA3_HD constexpr TileRange q_tile_range(Band32 band, i32 q_used, i32 kv_used, i32 key, i32 keys,
                                        i32 tile_q) {
  const i32 last = min(key + keys, kv_used) - 1;
  if (last < key || q_used == 0) return {};
  const Range<i32> above = rows_of_key(band, q_used, kv_used, key);
  const Range<i32> below = rows_of_key(band, q_used, kv_used, last);
  if (above.lo >= below.hi) return {};  // no end of a key's rows moves up from key to key
  TileRange range;
  range.first = above.lo / tile_q;
  range.end = (below.hi + tile_q - 1) / tile_q;
  range.unmasked_first = range.unmasked_end = range.end;
  if (key + keys > kv_used) return range;
  range.unmasked_first = clamp((below.lo + tile_q - 1) / tile_q, range.first, range.end);
  // Rows behind the last are masked, too: their scores may be NaN beside a key that is infinite.
  range.unmasked_end = max(max(above.hi, 0) / tile_q, range.unmasked_first);
  return range;
}

}  // namespace fa3::sm90
