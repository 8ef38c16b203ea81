// SPDX-License-Identifier: BSD-3-Clause
// tile_range.h — the keys that a query of one sequence sees and the KV tiles that a Q tile visits,
// in 32 bits: kernels count rows of one tensor, and 64-bit arithmetic costs them a microsecond per
// tile. kv_range.h is the same for any lengths.
#pragma once

#include "device/attn/mask.h"

namespace fa3 {

// Keys that query `row` of q_used sees among kv_used.
FA3_HD constexpr Range<i32> keys_of_row(WholeBand32 band, i32 q_used, i32 kv_used, i32 row) {
  const i32 p = row + kv_used - q_used;
  return {band.left == Band32::kUnbounded ? 0 : max(p - band.left, 0),
          band.right == Band32::kUnbounded ? kv_used : min(p + band.right + 1, kv_used)};
}
FA3_HD constexpr Range<i32> keys_of_row(Band32 band, i32 q_used, i32 kv_used, i32 row) {
  const Range<i32> keys = keys_of_row(WholeBand32{band}, q_used, kv_used, row);
  return band.chunks.any() ? intersect(keys, band.chunk_of(row + kv_used - q_used)) : keys;
}

// KV tiles [first, end); every row sees all keys of the tiles [unmasked_first, unmasked_end). Loops
// run downwards: [unmasked_end, end) with the mask, the unmasked tiles, [first, unmasked_first)
// with the mask.
struct TileRange {
  i32 first = 0;
  i32 unmasked_first = 0;
  i32 unmasked_end = 0;
  i32 end = 0;

  FA3_HD constexpr bool empty() const { return first >= end; }
};

// For queries [row, row + rows).
template <class Band>
FA3_HD constexpr TileRange tile_range(Band band, i32 q_used, i32 kv_used, i32 row, i32 rows,
                                      i32 tile_kv) {
  const i32 last = min(row + rows, q_used) - 1;
  if (last < row) return {};
  const Range<i32> above = keys_of_row(band, q_used, kv_used, row);
  const Range<i32> below = keys_of_row(band, q_used, kv_used, last);
  if (above.lo >= below.hi) return {};  // no end of a row's keys moves up from row to row
  TileRange range;
  range.first = above.lo / tile_kv;
  range.end = (below.hi + tile_kv - 1) / tile_kv;
  range.unmasked_end = max(max(above.hi, 0) / tile_kv, range.first);
  range.unmasked_first = min((below.lo + tile_kv - 1) / tile_kv, range.unmasked_end);
  return range;
}

}  // namespace fa3
