// SPDX-License-Identifier: BSD-3-Clause
// units.h — how decode work is cut. The KV tiles of all units stand in one line, of which each CTA
// takes an equal share: so no SM idles at any batch size, from lengths in device memory alone. A
// share begins and ends anywhere; a unit that several CTAs share is merged from their parts.
//
//   units     |    0    |    1    |       2       |3|
//   CTAs      |   0   |   1   |   2   |   3   |  4  |      parts: 0 | 0 1 | 1 2 | 2 3 | 3…
//
// Where shares of whole units are as good as equal, nothing is merged: a CTA takes the units that
// end in its share. Where all units are alike and as many CTAs for each are as good, each unit is
// cut by itself: CTAs have one part each. The line has the units of one KV head after those of the
// one before, so that what CTAs read at a time are the same keys of several heads, which are
// neighbours in memory.
//
// A unit takes a CTA some two tiles' time more than its own: it loads Q, fills the ring, stores O.
// Where units are unlike, each has spare places behind its tiles, so that a CTA with many short
// ones, as those that pad a batch, does not finish last.
//
// Several tiles of rows see the same keys. Each has a room of the same length in the line, for all
// KV tiles that any of the sequence's rows sees, and uses what its own rows see of it. Where units
// are not cut by themselves and all sequences have as many tiles of rows, the line has a copy for
// the first of each, one for the second and so on. CTAs take turns at copies, which are cut alike:
// so neighbours read the same keys at the same time, which come from L2.
#pragma once

#include "device/ptx/warp.h"
#include "device/sm90/decode/unit.h"
#include "device/warp/sequence_search.h"

namespace fa3::sm90 {

// All lanes of a warp alike.
template <auto kCfg>
class DecodeUnits : DecodeEntries<kCfg> {
  using Entries = DecodeEntries<kCfg>;
  using Entries::kOneTile, Entries::shape_, Entries::last, Entries::entry, Entries::length_of,
      Entries::rows_of_entry, Entries::room_of, Entries::set_tile, Entries::spare_,
      Entries::tiles_of_rows;

 public:
  FA3_DEV explicit DecodeUnits(const DecodeShape& shape) : Entries(shape) {
    // Divisions take long: those that do not wait for one another stand side by side.
    Count all = count();
    if constexpr (kOneTile && kCfg.ragged) {
      if (all.shortest < all.longest) {
        spare_ = kUnitTiles;
        all.tiles += kUnitTiles * all.units, all.shortest += kUnitTiles, all.longest += kUnitTiles;
      }
    }
    const u32 heads = static_cast<u32>(shape.heads_kv), most = shape.most_parts;
    const u32 tiles = heads * all.tiles, units = heads * all.units;
    const u32 ctas = min(static_cast<u32>(shape.ctas), tiles);
    u32 each = min(ctas / max(units, 1u), all.longest);  // CTAs of a unit, where all are alike
    if (most > 0) each = min(each, most);
    // Of n parts at most a unit has no more when it is no longer than n − 1 shares, wherever it
    // begins.
    ctas_ = ctas;
    if (most > 1)
      ctas_ = min(ctas, max(tiles / max((all.longest + most - 2) / (most - 1), 1u), 1u));
    cut_ = Cut::of(tiles, ctas_);
    const Cut unit = Cut::of(all.longest, each);
    const u32 share = max(cut_.longest(), 1u);
    whole_ = most == 1 || is_good(longest_whole(all, share), share);
    const bool alike = all.shortest == all.longest && each > 0 &&
                       (each == most || (!whole_ && is_good(unit.longest(), share)));
    if (alike) cut_ = unit, ctas_ = units * each, whole_ = each == 1;
    if constexpr (!kOneTile)
      if (!alike) cut_copies(all);
    head_tiles_ = copies_ > 1 ? all.rooms : all.tiles;
    copy_tiles_ = heads * head_tiles_;
  }

  // Whether CTAs take whole units.
  FA3_DEV bool whole() const { return whole_; }
  // CTAs that take part: each has a share.
  FA3_DEV u32 ctas() const { return ctas_; }
  // The places of CTA c.
  struct Share {
    u32 begin, end;
  };
  FA3_DEV Share share(u32 c) const {
    u32 span = c / cut_.ctas, rank = c - span * cut_.ctas;
    if (copies_ > 1) rank = c / copies_, span = c - rank * copies_;
    const u32 begin = span * cut_.span + rank * cut_.least + min(rank, cut_.longer);
    return {begin, begin + cut_.least + (rank < cut_.longer ? 1 : 0)};
  }
  // The CTA in whose share a place lies.
  FA3_DEV u32 cta_of(u32 place) const {
    const u32 span = place / cut_.span, rest = place - span * cut_.span;
    const u32 of_longer = cut_.longer * (cut_.least + 1);
    const u32 rank =
        rest < of_longer ? rest / (cut_.least + 1) : cut_.longer + (rest - of_longer) / cut_.least;
    return copies_ > 1 ? rank * copies_ + span : span * cut_.ctas + rank;
  }
  // From the CTA of a part of a unit to that of the next.
  FA3_DEV u32 stride() const { return copies_; }

  // The unit at a place of the line. Places only grow.
  FA3_DEV DecodeUnit at(u32 place) {
    const u32 copy = copies_ > 1 ? place / copy_tiles_ : 0;
    u32 rest = place - copy * copy_tiles_;
    const u32 kv_head = rest / head_tiles_;
    rest -= kv_head * head_tiles_;
    i32 b = 0;
    if constexpr (kCfg.ragged) {
      const u32 head = copy * static_cast<u32>(shape_.heads_kv) + kv_head;
      if (head != head_) search_ = {}, head_ = head;
      const SequenceSearch::Found found =
          search_.find(last(), rest, [&](i32 entry) { return length_of(entry); });
      b = found.batch, rest = found.index;
    } else {
      const u32 length = length_of(0);
      b = static_cast<i32>(rest / length);
      rest %= length;
    }
    DecodeUnit unit = entry(b);
    unit.kv_head = static_cast<i32>(kv_head);
    u32 tile = copy, before = 0;  // rooms before its own
    if (copies_ == 1 && (!kOneTile || unit.q.used == 0))
      tile = before = rest / room_of(unit.q, unit.kv);
    set_tile(unit, tile, before, place - rest);
    return unit;
  }

  // The unit of an entry's rows [tile · rows, …); one that is 0 long where there are fewer.
  FA3_DEV DecodeUnit of(u32 kv_head, i32 b, u32 tile) const {
    DecodeUnit unit = entry(b);
    if (tile >= tiles_of_rows(unit.q)) return {};
    u32 start = kv_head * head_tiles_;
    if constexpr (kCfg.ragged) {
      u32 before = 0;
      for (i32 entry = static_cast<i32>(ptx::lane_index()); entry < b; entry += 32)
        before += length_of(entry);
      start += ptx::redux_add(before);
    } else {
      start += static_cast<u32>(b) * length_of(0);
    }
    unit.kv_head = static_cast<i32>(kv_head);
    if (copies_ > 1)
      set_tile(unit, tile, 0, start + tile * copy_tiles_);
    else
      set_tile(unit, tile, tile, start);
    return unit;
  }

 private:
  static constexpr u32 kWorthMerging = 16;  // a CTA with a 16th more of tiles takes as long

  struct Count {
    u32 tiles = 0, units = 0;
    u32 shortest = ~0u, longest = 0;  // room of a unit
    // Of the lane's entries, until cut_copies(): tiles of their first units, and units of one.
    u32 rooms = 0, fewest = ~0u, most = 0;
  };
  // Whether CTAs that have so many tiles take as long as with an equal share.
  FA3_DEV static bool is_good(u64 tiles, u32 share) {
    return tiles <= share + share / kWorthMerging;
  }
  // Cuts a copy of the line for each tile of rows, where that is as good.
  FA3_DEV void cut_copies(Count& all) {
    if constexpr (kCfg.ragged) {
      all.rooms = ptx::redux_add(all.rooms);
      all.fewest = ptx::redux_min_u32(all.fewest), all.most = ptx::redux_max_u32(all.most);
    }
    if (all.fewest != all.most || all.most == 1 || ctas_ < all.most) return;
    const u32 share = max(cut_.longest(), 1u);
    const Cut copy = Cut::of(static_cast<u32>(shape_.heads_kv) * all.rooms, ctas_ / all.most);
    if (!is_good(copy.longest(), share)) return;
    cut_ = copy, ctas_ = copy.ctas * all.most, copies_ = all.most;
    whole_ = shape_.most_parts == 1 || is_good(longest_whole(all, copy.longest()), share);
  }
  // What a CTA may come to have when it takes the whole units that end in its share.
  FA3_DEV static u64 longest_whole(const Count& all, u32 share) {
    return min(u64{(share - 1) / all.shortest + 1} * all.longest, u64{share} + all.longest - 1);
  }
  // How spans of the line, one after the other, are shared by as many CTAs each: the first `longer`
  // shares of a span are one tile longer than the others. A span is the line, a copy or a unit.
  struct Cut {
    u32 span, ctas, least, longer;

    FA3_DEV static Cut of(u32 span, u32 ctas) {
      ctas = max(ctas, 1u);
      const u32 least = span / ctas;
      return {span, ctas, least, span - least * ctas};
    }
    FA3_DEV u32 longest() const { return least + (longer > 0 ? 1 : 0); }
  };
  // Adds one head of an entry, which may be one beyond the last.
  FA3_DEV void add(i32 b, Count& all) const {
    if (b > last()) return;
    SequenceRows q, kv;
    rows_of_entry(b, q, kv);
    if (q.rows == 0) return;
    const u32 room = room_of(q, kv);
    const u32 units = tiles_of_rows(q);
    all.tiles += room * units, all.units += units;
    all.shortest = min(all.shortest, room), all.longest = max(all.longest, room);
    if constexpr (!kOneTile)
      all.rooms += room, all.fewest = min(all.fewest, units), all.most = max(all.most, units);
  }
  // Of an entry in a copy of the line.
  FA3_DEV u32 length_of(i32 b) const {
    Count entry;
    add(b, entry);
    return copies_ > 1 ? entry.rooms : entry.tiles;
  }
  FA3_DEV Count count() const {
    Count all;
    if constexpr (!kCfg.ragged) {
      add(0, all);
      const u32 batch = static_cast<u32>(shape_.batch);
      all.tiles *= batch, all.units *= batch, all.rooms *= batch;
      return all;
    }
    for (i32 b = 0; b <= last(); b += 32) add(b + static_cast<i32>(ptx::lane_index()), all);
    all.tiles = ptx::redux_add(all.tiles), all.units = ptx::redux_add(all.units);
    all.shortest = ptx::redux_min_u32(all.shortest), all.longest = ptx::redux_max_u32(all.longest);
    return all;
  }

  u32 copies_ = 1;
  u32 copy_tiles_, head_tiles_;  // of a copy of the line, and in it of one KV head
  u32 ctas_;
  bool whole_;
  Cut cut_;
  SequenceSearch search_;
  u32 head_ = 0;  // in which it searches
};

// Where a CTA's part of a unit goes: the unit that it does not begin, or the one that it does not
// end.
FA3_DEV u32 part_slot(u32 cta, bool begins) { return 2 * cta + (begins ? 1 : 0); }

}  // namespace fa3::sm90
