// SPDX-License-Identifier: BSD-3-Clause
// kv_range.h — ranges of keys that queries see, and of queries that see keys: what loops visit and
// what they skip. A band sees one contiguous range per row, whose ends never move up from row to
// row and which begins at the latest where the one before ends, so the union over consecutive rows
// is contiguous too.
#pragma once

#include "device/attn/mask.h"

namespace fa3 {

// Keys that one query sees.
FA3_HD constexpr IndexRange visible_keys(Band band, SeqLens len, i64 query) {
  const i64 p = len.diagonal(query);
  // Comparisons rather than p + right: a user's right may be near 2^63.
  i64 lo = band.left == Band::kUnbounded || band.left >= p ? 0 : p - band.left;
  i64 hi = band.right == Band::kUnbounded || band.right >= len.kv - 1 - p
               ? len.kv
               : max(p + band.right + 1, 0);
  if (band.chunks.any()) {
    const IndexRange chunk = band.chunk_of(p);
    lo = max(lo, chunk.lo), hi = min(hi, chunk.hi);
  }
  return {min(lo, len.kv), hi};
}

// Keys that some query of rows sees (empty rows give an empty range).
FA3_HD constexpr IndexRange visible_keys(Band band, SeqLens len, IndexRange rows) {
  if (rows.empty()) return {0, 0};
  return {visible_keys(band, len, rows.lo).lo, visible_keys(band, len, rows.hi - 1).hi};
}

// Keys that every query of rows sees: inside it a tile needs no mask.
FA3_HD constexpr IndexRange common_keys(Band band, SeqLens len, IndexRange rows) {
  if (rows.empty()) return {0, 0};
  return {visible_keys(band, len, rows.hi - 1).lo, visible_keys(band, len, rows.lo).hi};
}

// Queries that see one key: the band mirrored on its diagonal, and those at positions in its chunk.
FA3_HD constexpr IndexRange visible_queries(Band band, SeqLens len, i64 key) {
  IndexRange rows = visible_keys(Band{{band.right, band.left}, {}}, SeqLens{len.kv, len.q}, key);
  if (band.chunks.any()) {
    const IndexRange chunk = band.chunk_of(key);
    const i64 first = len.diagonal(0);  // the position of query 0
    rows = {min(max(rows.lo, chunk.lo - first), len.q), max(min(rows.hi, chunk.hi - first), 0)};
  }
  return rows;
}

// Queries that see some key of keys.
FA3_HD constexpr IndexRange visible_queries(Band band, SeqLens len, IndexRange keys) {
  if (keys.empty()) return {0, 0};
  return {visible_queries(band, len, keys.lo).lo, visible_queries(band, len, keys.hi - 1).hi};
}

}  // namespace fa3
