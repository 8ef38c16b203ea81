// SPDX-License-Identifier: BSD-3-Clause
// sequence_ids.h — documents within a sequence as a mask functor: a query sees the keys of its own
// id. KV tiles without such a key are not visited, and those with no other take no mask.
#pragma once

#include "device/ptx/memory.h"
#include "device/ptx/warp.h"
#include "device/warp/element.h"

namespace fa3 {

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
  // between the queries' least and greatest id. Each lane looks at every 32nd query and key.
  template <int kTileKv>
  FA3_DEV static TileRange tiles(const ElementArgs& args, const ElementPlace& place,
                                 const TileRange& range, i32 row, i32 rows) {
    if (range.empty()) return range;
    const i32 lane = static_cast<i32>(ptx::lane_index());
    const i32 last = min(row + rows, place.q_used) - 1;
    i32 lo = SequenceIdMask::row(args, place, min(row + lane, last)), hi = lo;
    FA3_NO_UNROLL
    for (i32 i = row + lane + 32; i <= last; i += 32) {
      const i32 id = SequenceIdMask::row(args, place, i);
      lo = min(lo, id), hi = max(hi, id);
    }
    lo = ptx::redux_min_i32(lo), hi = ptx::redux_max_i32(hi);
    // All loads of kAtOnce tiles are in flight together, without a branch between them: one tile's
    // at a time, the scan took four times as long as the GEMMs that it saved.
    constexpr i32 kAtOnce = 4, kLoads = (kTileKv + 31) / 32;
    TileRange found{range.end, range.end, range.end, range.first};
    bool unmasked_ended = false;  // unmasked tiles have to follow one another
    FA3_NO_UNROLL
    for (i32 base = range.first; base < range.end; base += kAtOnce) {
      i32 ids[kAtOnce][kLoads];
      FA3_UNROLL
      for (i32 t = 0; t < kAtOnce; ++t) {
        FA3_UNROLL
        for (i32 g = 0; g < kLoads; ++g) {
          const i32 in_tile = min(32 * g + lane, kTileKv - 1);
          ids[t][g] = key(args, place, min((base + t) * kTileKv + in_tile, place.kv_used - 1));
        }
      }
      FA3_UNROLL
      for (i32 t = 0; t < kAtOnce; ++t) {
        u32 some = 0, all = 1;
        FA3_UNROLL
        for (i32 g = 0; g < kLoads; ++g) {
          const i32 id = ids[t][g];
          some |= static_cast<u32>(lo <= id) & static_cast<u32>(id <= hi);
          all &= static_cast<u32>(lo == id) & static_cast<u32>(id == hi);
        }
        const i32 tile = base + t;
        const bool visited = ptx::any(some != 0) && tile < range.end;
        const bool unmasked = ptx::all(all != 0) && !unmasked_ended &&
                              range.unmasked_first <= tile && tile < range.unmasked_end;
        if (visited) found.first = min(found.first, tile), found.end = tile + 1;
        const bool begun = found.unmasked_first < range.end;
        if (unmasked && !begun) found.unmasked_first = tile;
        if (unmasked) found.unmasked_end = tile + 1;
        if (!unmasked && begun) unmasked_ended = true;
      }
    }
    if (found.first >= found.end) return {};
    // None: as tile_range() has it.
    if (found.unmasked_first == range.end) found.unmasked_first = found.unmasked_end = found.first;
    return found;
  }
};

}  // namespace fa3
