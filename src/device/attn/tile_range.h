// SPDX-License-Identifier: BSD-3-Clause
// tile_range.h — the KV tiles that a Q tile visits, last to first, and which of them need a mask.
#pragma once

#include "device/attn/kv_range.h"

namespace fa3 {

// Tiles [first, end); of these [plain_first, plain_end) are visible to every row. Loops run
// downwards: [plain_end, end) under the mask, then plain, then [first, plain_first) under the mask.
struct TileRange {
  i32 first = 0;
  i32 plain_first = 0;
  i32 plain_end = 0;
  i32 end = 0;

  FA3_HD constexpr bool empty() const { return first >= end; }
};

FA3_HD constexpr TileRange tile_range(Band band, SeqLens len, IndexRange rows, i32 tile_kv) {
  rows.hi = min_of(rows.hi, len.q);
  const IndexRange some = visible_keys(band, len, rows);
  if (some.empty()) return {};
  const IndexRange all = common_keys(band, len, rows);
  TileRange range;
  range.first = static_cast<i32>(some.lo / tile_kv);
  range.end = static_cast<i32>(div_up(some.hi, tile_kv));
  range.plain_end = static_cast<i32>(max_of(all.hi / tile_kv, range.first));
  range.plain_first = static_cast<i32>(min_of(div_up(all.lo, tile_kv), range.plain_end));
  return range;
}

}  // namespace fa3
