// SPDX-License-Identifier: BSD-3-Clause
// sequence_ids.h — documents within a sequence as a mask functor: a query sees the keys of its own
// id. KV tiles without such a key are not visited, and those with no other take no mask.
#pragma once

#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/warp.h"
#include "device/warp/element.h"

namespace fa3 {

// The ids that a lane has of some KV tiles: of every 32nd key. All loads are in flight together, at
// fixed offsets from one address: waiting for each tile's took four times as long as the GEMMs that
// the scan saved, and an address a load was half of its instructions. Sets of tiles are words,
// the first tile in the highest bit.
template <int kTileKv>
struct KeyIds {
  static_assert(kTileKv >= 32, "a load of 32 keys would leave the tile");
  static constexpr i32 kLoads = (kTileKv + 31) / 32;
  static constexpr i32 kTiles = 20 / kLoads;  // the scheduler has registers for 20 loads
  u32 above[kTiles][kLoads];                  // id − lo

  // ids: from the lane's first key on, of which the sequence has `left`. whole: all keys exist.
  FA3_DEV KeyIds(const i32* ids, i32 left, bool whole, u32 lo) {
    if (whole) {
      load<true>(ids, left, lo);
    } else {
      load<false>(ids, left, lo);
    }
    FA3_UNROLL
    for (i32 t = 0; t < kTiles; ++t) {
      FA3_UNROLL
      for (i32 g = 0; g < kLoads; ++g) above[t][g] -= lo;
    }
  }

  // Tiles with an id from lo to lo + span.
  FA3_DEV u32 any_within(u32 span) const {
    u32 tiles = 0;
    FA3_UNROLL
    for (i32 t = 0; t < kTiles; ++t) {
      u32 least = above[t][0];
      FA3_UNROLL
      for (i32 g = 1; g < kLoads; ++g) least = min(least, above[t][g]);
      if (least <= span) tiles |= 1u << (31 - t);
    }
    return tiles;
  }

  // Tiles with no id but lo.
  FA3_DEV u32 all_equal() const {
    u32 tiles = 0;
    FA3_UNROLL
    for (i32 t = 0; t < kTiles; ++t) {
      u32 other = above[t][0];
      FA3_UNROLL
      for (i32 g = 1; g < kLoads; ++g) other |= above[t][g];
      if (other == 0) tiles |= 1u << (31 - t);
    }
    return tiles;
  }

 private:
  // A key that does not exist has id lo − 1: within none but the span of all ids, which any key of
  // the tile is within, too.
  template <bool kWhole>
  FA3_DEV void load(const i32* ids, i32 left, u32 lo) {
    FA3_UNROLL
    for (i32 t = 0; t < kTiles; ++t) {
      FA3_UNROLL
      for (i32 g = 0; g < kLoads; ++g) {
        // Where the tile is no multiple of 32 keys, its last load overlaps the one before.
        const i32 key = t * kTileKv + min(32 * g, kTileKv - 32);
        above[t][g] = lo - 1;
        if (kWhole || key < left) above[t][g] = static_cast<u32>(ptx::ld_global_nc(ids + key));
      }
    }
  }
};

struct SequenceIdMask {
  static constexpr bool kActive = true;
  using Row = i32;
  using Key = i32;

  FA3_DEV static i32 row(const ElementArgs& args, const ElementPlace& place, i32 row) {
    if (args.ids_q == nullptr || row >= place.q_used) return 0;
    return ptx::ld_global_nc(args.ids_q + place.batch * args.id_q_batch + place.q_begin + row);
  }
  FA3_DEV static i32 key(const ElementArgs& args, const ElementPlace& place, i32 key) {
    if (args.ids_kv == nullptr) return 0;
    return ptx::ld_global_nc(args.ids_kv + place.batch * args.id_kv_batch + place.kv_begin + key);
  }
  FA3_HD static constexpr bool sees(i32 row, i32 key) { return row == key; }

  // Ids may be in any order: tiles are visited from the first to the last that holds a key
  // between the queries' least and greatest id. Each lane looks at every 32nd query and key. A
  // program with more functors than the problem has no ids.
  template <int kTileKv>
  FA3_DEV static TileRange tiles(const ElementArgs& args, const ElementPlace& place,
                                 const TileRange& range, i32 row, i32 rows) {
    if (range.empty() || args.ids_kv == nullptr) return range;
    const i32 lane = static_cast<i32>(ptx::lane_index());
    const i32* const queries = args.ids_q + place.batch * args.id_q_batch + place.q_begin;
    const i32 last = min(row + rows, place.q_used) - 1;
    i32 lo = ptx::ld_global_nc(queries + min(row + lane, last)), hi = lo;
    FA3_UNROLL
    for (i32 i = 32; i < rows; i += 32) {
      const i32 id = ptx::ld_global_nc(queries + min(row + i + lane, last));
      lo = min(lo, id), hi = max(hi, id);
    }
    lo = ptx::redux_min_i32(lo), hi = ptx::redux_max_i32(hi);
    const u32 span = static_cast<u32>(hi) - static_cast<u32>(lo);

    // The lane is in the address that the loop advances: NVRTC otherwise combines it with each
    // load's offset, and needs an address a load.
    const i32* keys = args.ids_kv + place.batch * args.id_kv_batch + place.kv_begin +
                      range.first * kTileKv + lane;
    TileRange found{range.end, range.end, range.end, range.first};
    constexpr i32 kTiles = KeyIds<kTileKv>::kTiles;
    FA3_NO_UNROLL
    for (i32 tile = range.first; tile < range.end; tile += kTiles) {
      const bool whole = tile + kTiles < range.end;  // only the last tile may be partial
      const KeyIds<kTileKv> ids(keys, place.kv_used - lane - tile * kTileKv, whole,
                                static_cast<u32>(lo));
      keys += kTiles * kTileKv;
      const u32 visited = ptx::redux_or(ids.any_within(span)) & first_tiles(range.end - tile);
      if (visited == 0) continue;
      found.first = min(found.first, tile + ptx::clz(visited));
      found.end = tile + ptx::clz(visited & (0 - visited)) + 1;
      if (span != 0) continue;
      const u32 unmasked = ptx::redux_and(ids.all_equal()) &
                           first_tiles(range.unmasked_end - tile) &
                           ~first_tiles(range.unmasked_first - tile);
      if (unmasked == 0) continue;
      // Unmasked tiles have to follow one another: the first run of them, which may have begun
      // before.
      const i32 begin = tile + ptx::clz(unmasked);
      if (found.unmasked_first == range.end) found.unmasked_first = found.unmasked_end = begin;
      if (found.unmasked_end == begin)
        found.unmasked_end += ptx::clz(~(unmasked << ptx::clz(unmasked)));
    }
    if (found.first >= found.end) return {};
    // None: as tile_range() has it.
    if (found.unmasked_first == range.end) found.unmasked_first = found.unmasked_end = found.first;
    return found;
  }

 private:
  FA3_HD static constexpr u32 first_tiles(i32 n) { return n < 32 ? ~(~0u >> max(n, 0)) : ~0u; }
};

}  // namespace fa3
