// SPDX-License-Identifier: BSD-3-Clause
// unit.h — the units of decode work: a tile of packed rows of one KV head of one sequence with all
// KV tiles that its rows see.
#pragma once

#include "device/attn/tile_range.h"
#include "device/sm90/decode/args.h"
#include "device/sm90/decode/config.h"
#include "device/types.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

struct DecodeUnit {
  i32 batch, kv_head;
  i32 row;             // the first packed row
  SequenceRows q, kv;  // kv: none for rows of no sequence
  i32 before;          // of its keys those that are not appended
  TileRange range;     // of KV tiles
  u32 begin, length;   // its place in the line; an empty range is 1 long
  u32 room_end;        // where the next unit's room begins

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

// The bits of a query of the unit in tree_mask; of rows that do not count none.
FA3_DEV u64 tree_bits(const DecodeArgs& args, const DecodeUnit& unit, i32 query) {
  if (query < 0 || query >= unit.q.used) return 0;
  return args.tree.bits(unit.batch, first_row(args.shape.q_axis, unit.q) + query);
}
// Of the unit's keys those of the tree begin here; from this tile on some are hidden.
FA3_DEV i32 first_in_tree(const DecodeUnit& unit) { return max(unit.kv.used - unit.q.used, 0); }
template <DecodeConfig kCfg>
FA3_DEV bool is_masked(const DecodeUnit& unit, i32 tile) {
  i32 end = unit.range.unmasked_end;
  if constexpr (kCfg.tree) end = min(end, first_in_tree(unit) / kCfg.tile_kv);
  return tile < unit.range.unmasked_first || tile >= end;
}

// What a call's units are made from. An entry is a sequence; with varlen queries the rows of no
// sequence are one more. kCfg has rows, one_tile, tile_kv, ragged and cached().
template <auto kCfg>
class DecodeEntries {
 protected:
  static constexpr bool kOneTile = kCfg.one_tile;  // rows of no sequence may be those of more

  FA3_DEV explicit DecodeEntries(const DecodeShape& shape) : shape_(shape) {}

  FA3_DEV i32 last() const {
    return shape_.q_axis.cu_seqlens != nullptr ? shape_.batch : shape_.batch - 1;
  }
  // Lengths that lie do not make the line longer than the plan has counted. Returns how many keys
  // are not appended.
  FA3_DEV i32 rows_of_entry(i32 b, SequenceRows& q, SequenceRows& kv) const {
    q = rows_of<kCfg.ragged>(shape_.q_axis, shape_.batch, b);
    kv = SequenceRows{};
    if constexpr (kCfg.cached())
      if (shape_.beside && (b == shape_.batch || q.rows > shape_.most_q)) q.rows = q.used = 0;
    if (b == shape_.batch) return 0;
    if constexpr (kCfg.cached()) {
      kv = shape_.cache.rows_of(shape_.kv_axis, b);
    } else {
      kv = rows_of<kCfg.ragged>(shape_.kv_axis, shape_.batch, b);
    }
    q.rows = min(q.rows, shape_.most_q), q.used = min(q.used, shape_.most_q);
    kv.used = min(kv.used, shape_.most_kv);
    const i32 before = kv.used;
    if constexpr (kCfg.appends) kv.used += min(shape_.fresh, min(kv.rows, shape_.most_kv) - before);
    return before;
  }
  FA3_DEV DecodeUnit entry(i32 b) const {
    DecodeUnit unit{};
    unit.batch = b;
    unit.before = rows_of_entry(b, unit.q, unit.kv);
    return unit;
  }
  // Makes it the unit of a tile of rows, with so many rooms before its own from `start` on.
  FA3_DEV void set_tile(DecodeUnit& unit, u32 tile, u32 rooms, u32 start) const {
    const TileRange all = range_of(unit.q, unit.kv, 0, unit.q.rows);
    unit.row = static_cast<i32>(tile) * kCfg.rows;
    unit.range = all;
    if constexpr (!kOneTile) {
      const i32 first = shape_.group.quotient(unit.row);
      const i32 end = shape_.group.quotient(unit.row + kCfg.rows - 1) + 1;
      unit.range = range_of(unit.q, unit.kv, first, end);
    }
    const u32 room = length_of(all) + spare_;
    unit.begin = start + rooms * room;
    unit.room_end = unit.begin + room;
    unit.length = length_of(unit.range);
    if (!unit.range.empty()) unit.begin += static_cast<u32>(unit.range.first - all.first);
  }
  FA3_DEV u32 tiles_of_rows(const SequenceRows& q) const {
    if (kOneTile && q.used > 0) return 1;
    return static_cast<u32>(q.rows * static_cast<i32>(shape_.group.divisor) + kCfg.rows - 1) /
           kCfg.rows;
  }
  // The KV tiles of queries [first, end).
  FA3_DEV TileRange range_of(const SequenceRows& q, const SequenceRows& kv, i32 first,
                             i32 end) const {
    return tile_range(shape_.template band_of<kCfg.chunks>(), q.used, kv.used, first, end - first,
                      kCfg.tile_kv);
  }
  FA3_DEV static u32 length_of(const TileRange& range) {
    return static_cast<u32>(max(range.end - range.first, 1));
  }
  // Of each tile of rows.
  FA3_DEV u32 room_of(const SequenceRows& q, const SequenceRows& kv) const {
    return length_of(range_of(q, kv, 0, q.rows)) + spare_;
  }

  const DecodeShape& shape_;
  u32 spare_ = 0;  // places of a room behind its KV tiles
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

}  // namespace fa3::sm90
