// SPDX-License-Identifier: BSD-3-Clause
// units.h — how decode work is cut. A unit is a tile of packed rows of one KV head of one sequence
// with all KV tiles that its rows see. The KV tiles of all units stand in one line, of which each
// CTA takes an equal share: so no SM idles at any batch size, from lengths in device memory alone.
// A share begins and ends anywhere; a unit that several CTAs share is merged from their parts.
//
//   units     |    0    |    1    |       2       |3|
//   CTAs      |   0   |   1   |   2   |   3   |  4  |      parts: 0 | 0 1 | 1 2 | 2 3 | 3…
//
// Where shares of whole units are as good as equal, nothing is merged: a CTA takes the units that
// end in its share. The line has the units of one KV head after those of the one before, so that
// what CTAs read at a time are the same keys of several heads, which are neighbours in memory.
#pragma once

#include "device/attn/tile_range.h"
#include "device/ptx/warp.h"
#include "device/sm90/decode/args.h"
#include "device/sm90/decode/config.h"
#include "device/types.h"
#include "device/warp/sequence_rows.h"
#include "device/warp/sequence_search.h"

namespace fa3::sm90 {

struct DecodeUnit {
  i32 batch, kv_head;
  i32 row;             // the first packed row
  SequenceRows q, kv;  // kv: none for rows of no sequence
  TileRange range;     // of KV tiles
  u32 begin, length;   // its place in the line; an empty range is 1 long

  FA3_DEV u32 end() const { return begin + length; }
};

// Query and head of a packed row, counted from the unit's first.
struct PackedRow {
  i32 query, head;
};
FA3_DEV PackedRow packed_row(const DecodeShape& shape, const DecodeUnit& unit, u32 row) {
  const i32 packed = unit.row + static_cast<i32>(row);
  return {shape.group.quotient(packed),
          unit.kv_head * static_cast<i32>(shape.group.divisor) + shape.group.remainder(packed)};
}

// All lanes of a warp alike. kCfg has rows, tile_kv, ragged and cached().
template <auto kCfg>
class DecodeUnits {
 public:
  FA3_DEV explicit DecodeUnits(const DecodeShape& shape) : shape_(shape) {
    const Count all = count();
    head_tiles_ = all.tiles;
    const u32 tiles = static_cast<u32>(shape.heads_kv) * all.tiles;
    ctas_ = min(static_cast<u32>(shape.ctas), tiles);
    if (shape.most_parts > 1) ctas_ = min(ctas_, max(bounded(all, tiles), 1u));
    least_ = ctas_ > 0 ? tiles / ctas_ : 0;
    longer_ = tiles - least_ * ctas_;
    // What a CTA may come to have when it takes whole units.
    const u32 share = max(least_ + (longer_ > 0 ? 1 : 0), 1u);
    const u64 units = (share - 1) / all.shortest + 1;
    const u64 most = min(units * all.longest, u64{share} + all.longest - 1);
    whole_ = shape.most_parts == 1 || most <= share + share / kWorthMerging;
  }

  // Whether CTAs take whole units.
  FA3_DEV bool whole() const { return whole_; }
  // CTAs that take part: each has a share.
  FA3_DEV u32 ctas() const { return ctas_; }
  // Where the share of CTA c begins; that of c + 1 is where it ends.
  FA3_DEV u32 share(u32 c) const { return c * least_ + min(c, longer_); }
  // The CTA in whose share a place lies.
  FA3_DEV u32 cta_of(u32 place) const {
    const u32 of_longer = longer_ * (least_ + 1);
    return place < of_longer ? place / (least_ + 1) : longer_ + (place - of_longer) / least_;
  }

  // The unit at a place of the line. Places only grow.
  FA3_DEV DecodeUnit at(u32 place) {
    const u32 kv_head = place / head_tiles_;
    u32 rest = place - kv_head * head_tiles_;
    i32 b = 0;
    if constexpr (kCfg.ragged) {
      if (kv_head != head_) search_ = {}, head_ = kv_head;
      const SequenceSearch::Found found =
          search_.find(last(), rest, [&](i32 entry) { return length_of(entry); });
      b = found.batch, rest = found.index;
    } else {
      const u32 length = length_of(0);
      b = static_cast<i32>(rest / length);
      rest %= length;
    }
    DecodeUnit unit = first_of_entry(b);
    unit.kv_head = static_cast<i32>(kv_head);
    if (unit.q.used == 0) {
      unit.row = static_cast<i32>(rest) * kCfg.rows;
      rest = 0;
    }
    if constexpr (!kOneTile) {
      while (rest >= unit.length) {
        rest -= unit.length;
        next_rows(unit);
      }
    }
    unit.begin = place - rest;
    return unit;
  }

  // The unit of an entry's rows [tile · rows, …); one that is 0 long where there are fewer.
  FA3_DEV DecodeUnit of(u32 kv_head, i32 b, u32 tile) const {
    DecodeUnit unit = first_of_entry(b);
    if (tile >= tiles_of_rows(unit.q)) return {};
    u32 before = 0;
    if constexpr (kCfg.ragged) {
      for (i32 entry = static_cast<i32>(ptx::lane_index()); entry < b; entry += 32)
        before += length_of(entry);
      before = ptx::redux_add(before);
    } else {
      before = static_cast<u32>(b) * length_of(0);
    }
    unit.kv_head = static_cast<i32>(kv_head);
    unit.begin = kv_head * head_tiles_ + before;
    for (; tile > 0; --tile) {
      unit.begin += unit.length;
      next_rows(unit);
    }
    return unit;
  }

 private:
  // All queries of a sequence are rows of one tile; rows of no sequence may be those of more.
  static constexpr bool kOneTile = kCfg.rows < kMostDecodeRows;
  static constexpr u32 kWorthMerging = 16;  // a CTA with a 16th more of tiles takes as long

  struct Count {
    u32 tiles = 0, shortest = ~0u, longest = 0;  // shortest, longest: of a unit
  };
  // Varlen queries: rows of no sequence are one entry more.
  FA3_DEV i32 last() const {
    return shape_.q_axis.cu_seqlens != nullptr ? shape_.batch : shape_.batch - 1;
  }
  // Lengths that lie do not make the line longer than the plan has counted.
  FA3_DEV void rows_of_entry(i32 b, SequenceRows& q, SequenceRows& kv) const {
    q = rows_of<kCfg.ragged>(shape_.q_axis, shape_.batch, b);
    kv = SequenceRows{};
    if constexpr (kCfg.cached())
      if (shape_.beside && (b == shape_.batch || q.rows > shape_.most_q)) q.rows = q.used = 0;
    if (b == shape_.batch) return;
    if constexpr (kCfg.cached()) {
      kv = shape_.cache.rows_of(shape_.kv_axis, b);
    } else {
      kv = rows_of<kCfg.ragged>(shape_.kv_axis, shape_.batch, b);
    }
    q.rows = min(q.rows, shape_.most_q), q.used = min(q.used, shape_.most_q);
    kv.used = min(kv.used, shape_.most_kv);
  }
  // Of the first KV head of an entry the first rows; not yet: where it begins.
  FA3_DEV DecodeUnit first_of_entry(i32 b) const {
    DecodeUnit unit{};
    unit.batch = b;
    rows_of_entry(b, unit.q, unit.kv);
    set_range(unit);
    return unit;
  }
  FA3_DEV void next_rows(DecodeUnit& unit) const {
    unit.row += kCfg.rows;
    set_range(unit);
  }
  FA3_DEV void set_range(DecodeUnit& unit) const {
    unit.range = range_of(unit.q, unit.kv, unit.row);
    unit.length = length_of(unit.range);
  }
  FA3_DEV u32 tiles_of_rows(const SequenceRows& q) const {
    if (kOneTile && q.used > 0) return 1;
    return static_cast<u32>(q.rows * static_cast<i32>(shape_.group.divisor) + kCfg.rows - 1) /
           kCfg.rows;
  }
  // The KV tiles of packed rows from `row` on.
  FA3_DEV TileRange range_of(const SequenceRows& q, const SequenceRows& kv, i32 row) const {
    i32 first = 0, end = q.rows;
    if constexpr (!kOneTile) {
      first = shape_.group.quotient(row);
      end = shape_.group.quotient(row + kCfg.rows - 1) + 1;
    }
    return tile_range(shape_.band, q.used, kv.used, first, end - first, kCfg.tile_kv);
  }
  FA3_DEV static u32 length_of(const TileRange& range) {
    return static_cast<u32>(max(range.end - range.first, 1));
  }
  // f(length) for each tile of rows that count.
  template <class F>
  FA3_DEV void for_tiles(const SequenceRows& q, const SequenceRows& kv, const F& f) const {
    if constexpr (kOneTile) {
      f(length_of(range_of(q, kv, 0)));
    } else {
      const i32 rows = q.rows * static_cast<i32>(shape_.group.divisor);
      for (i32 row = 0; row < rows; row += kCfg.rows) f(length_of(range_of(q, kv, row)));
    }
  }
  // CTAs with which no unit has more than n parts: it is n shares long, all units are, and so begin
  // where shares do; or it is no longer than n − 1 shares, wherever it begins.
  FA3_DEV u32 bounded(const Count& all, u32 tiles) const {
    const u32 n = shape_.most_parts;
    if (all.shortest == all.longest && all.longest % n == 0) {
      const u32 exact = tiles / (all.longest / n);
      if (exact <= ctas_) return exact;
    }
    return tiles / max((all.longest + n - 2) / (n - 1), 1u);
  }
  // Adds one head of an entry, which may be one beyond the last.
  FA3_DEV void add(i32 b, Count& all) const {
    if (b > last()) return;
    SequenceRows q, kv;
    rows_of_entry(b, q, kv);
    const auto add_tiles = [&](u32 length, u32 count) {
      all.tiles += length * count;
      all.shortest = min(all.shortest, length), all.longest = max(all.longest, length);
    };
    if (q.used > 0) {
      for_tiles(q, kv, [&](u32 length) { add_tiles(length, 1); });
    } else if (q.rows > 0) {
      add_tiles(1, tiles_of_rows(q));
    }
  }
  FA3_DEV u32 length_of(i32 b) const {
    Count entry;
    add(b, entry);
    return entry.tiles;
  }
  FA3_DEV Count count() const {
    Count all;
    if constexpr (!kCfg.ragged) {
      add(0, all);
      all.tiles *= static_cast<u32>(shape_.batch);
      return all;
    }
    for (i32 b = 0; b <= last(); b += 32) add(b + static_cast<i32>(ptx::lane_index()), all);
    return {ptx::redux_add(all.tiles), ptx::redux_min_u32(all.shortest),
            ptx::redux_max_u32(all.longest)};
  }

  const DecodeShape& shape_;
  u32 head_tiles_;             // of one KV head
  u32 ctas_, least_, longer_;  // the first `longer_` shares are one tile longer than the others
  bool whole_;
  SequenceSearch search_;
  u32 head_ = 0;  // in which it searches
};

// The parts of a unit, each of kTiles KV tiles of the sequence (common/key_parts.h).
template <int kTiles>
struct UnitParts {
  i32 first, end;
  u32 slot;  // of the first

  FA3_DEV static UnitParts of(const DecodeUnit& unit, const DecodeShape& shape,
                              const DecodeParts& parts, i32 rows) {
    const TileRange& range = unit.range;
    if (range.empty()) return {0, 1, 0};
    const u32 tile =
        static_cast<u32>(unit.batch) * parts.row_tiles + static_cast<u32>(unit.row / rows);
    const u32 index = tile * static_cast<u32>(shape.heads_kv) + static_cast<u32>(unit.kv_head);
    const i32 first = range.first / kTiles;
    return {first, (range.end - 1) / kTiles + 1, index * parts.per_unit + static_cast<u32>(first)};
  }
  FA3_DEV bool one() const { return end - first == 1; }
};

// Where a CTA's part of a unit goes: the unit that it does not begin, or the one that it does not
// end.
FA3_DEV u32 part_slot(u32 cta, bool begins) { return 2 * cta + (begins ? 1 : 0); }

}  // namespace fa3::sm90
