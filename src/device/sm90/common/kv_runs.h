// SPDX-License-Identifier: BSD-3-Clause
// kv_runs.h — KV tiles from a cache. Keys of a sequence that lie next to each other wherever the
// sequence begins are a run. TMA loads each as a sequence of a ragged tensor (ragged.h); since an
// SM's takes some 60 clocks for each, lanes copy short ones instead, row by row. Either way keys
// beyond the sequence become zeros, whatever lies there.
#pragma once

#include "device/attn/kinds.h"
#include "device/hopper/barrier.h"
#include "device/hopper/swizzle.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/async_copy.h"
#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/kv_cache.h"
#include "device/sm90/common/ragged.h"
#include "device/tensor_map.h"

namespace fa3::sm90 {

// Arrivals at the barrier of a tile.
FA3_HD constexpr u32 kv_arrivals(KvSource source) { return source == KvSource::kRows ? 33 : 1; }
// Of a lane's runs of a tile, those whose places it holds. ahead: it has registers to look ahead.
FA3_HD constexpr int held_runs(KvSource source, int keys, bool ahead) {
  return ahead || source == KvSource::kRows ? static_cast<int>(div_up(keys, 32)) : 1;
}
// Before wgmma reads the tile: copies by lanes are not TMA's.
template <KvSource kSource>
FA3_DEV void wait_kv(Barrier& full, u32 phase, Where where = Where::here()) {
  full.wait(phase, where);
  if constexpr (kSource == KvSource::kRows) ptx::fence_proxy_async_shared(where);
}

// The runs of a warp's KV tiles of kKeys keys: each lane knows some of a window of tiles, which are
// read at once. kAhead > 0: it has registers to look ahead; 0: but for kRows of at most 32 runs.
template <KvSource kSource, int kKeys, int kAhead>
class KvRuns {
 public:
  FA3_DEV explicit KvRuns(const KvCacheArgs& cache) : cache_(cache) {}

  FA3_DEV void begin(i32 batch, const SequenceRows& kv) {
    batch_ = batch, kv_ = kv;
    window_ = ahead_ = -1;
  }
  // All lanes, before the tile is loaded. Nothing waits for what is read until then.
  FA3_DEV void find(i32 tile) {
    const i32 window = tile / cache_.tiles;
    if (window == window_) return;
    window_ = window;
    if constexpr (kAhead > 0) {
      if (window == ahead_) {
        FA3_UNROLL
        for (int u = 0; u < kHeld; ++u) place_[u] = next_[u];
        return;
      }
    }
    read(window, place_);
  }
  // After a tile was loaded: where the one that follows lies.
  FA3_DEV void look_ahead(i32 tile) requires(kAhead > 0) {
    const i32 window = tile / cache_.tiles;
    if (window == window_ || window == ahead_) return;
    ahead_ = window;
    read(window, next_);
  }
  // Whether a key of the tile may lie nowhere, as one of its window does. All lanes, after find().
  FA3_DEV bool hides() const {
    bool any = false;
    FA3_UNROLL
    for (int u = 0; u < kHeld; ++u) any |= place_[u].row >= 0 && !cache_.has(place_[u].entry);
    return ptx::any(any);
  }
  // By all lanes, which have waited for the stage and may have written what belongs to it; `full`
  // has kv_arrivals().
  template <TileLayout kTile>
  FA3_DEV void load(u8* to, Barrier& full, const TensorMap& map, const KvPlaces& places,
                    i32 kv_head, i32 tile, ptx::L2Hint hint) const {
    static_assert(kTile.rows == kKeys && kTile.panel_width() >= 64,
                  "runs that TMA loads, of 4 keys at least, begin at multiples of 128 bytes");
    if constexpr (kSource == KvSource::kRows) {
      full.arrive_if(ptx::lane_index() == 0);
      copy_rows<kTile>(to, full, places, kv_head);
    } else {
      if (ptx::lane_index() == 0) full.arrive_expect_tx(static_cast<u32>(kTile.bytes()));
      ptx::warp_sync();  // sim:spare(converge)
      load_runs<kTile>(to, full, map, places, kv_head, tile, hint);
    }
  }

 private:
  static constexpr int kOfLane = static_cast<int>(div_up(kKeys, 32));
  static constexpr int kHeld = held_runs(kSource, kKeys, kAhead > 0);
  struct Place {
    i32 entry = -1, row = -1;  // −1: of no key of the sequence
  };

  template <TileLayout kTile>
  FA3_DEV void load_runs(u8* to, Barrier& full, const TensorMap& map, const KvPlaces& places,
                         i32 kv_head, i32 tile, ptx::L2Hint hint) const {
    const u32 address = ptx::smem_address(to), bar = full.address();
    FA3_UNROLL
    for (int u = 0; u < kHeld; ++u) {
      if (!in_tile(tile, u)) continue;
      const auto [entry, row] = place_[u];
      const i32 used = cache_.has(entry) ? keys(u) : 0;
      const i32 x = kRaggedRows - used;
      const i32 y = used > 0 ? entry * places.entry + (row + used) * places.row : 0;
      const u32 first = static_cast<u32>((index(u) - first_of(tile)) * cache_.run);
      FA3_UNROLL
      for (u32 panel = 0; panel < kTile.panels(); ++panel)
        ptx::tma_load_5d(address + panel * static_cast<u32>(kTile.panel_bytes()) +
                             first * static_cast<u32>(kTile.panel_width()),
                         map, bar, kTile.panel_columns() * static_cast<i32>(panel), x, y,
                         kRaggedRows, kv_head, hint);
    }
  }
  // Runs of one key. What a lane copies arrives at `full` when it is there.
  template <TileLayout kTile>
  FA3_DEV void copy_rows(u8* to, Barrier& full, const KvPlaces& from, i32 kv_head) const {
    constexpr u32 kChunks = static_cast<u32>(kTile.panel_width()) / 16;  // of a row of a panel
    const u8* const head = from.data + kv_head * from.head + 16 * (ptx::lane_index() % kChunks);
    FA3_UNROLL
    for (int u = 0; u < kOfLane; ++u) copy_block<kTile>(to, from, head, u, place_[u]);
    ptx::cp_async_mbar_arrive_noinc(full.address());
  }
  // 32 rows from row 32 · u on, of which a lane knows one; 4 at a time, swizzled in two ways, or 8,
  // all in the same.
  template <TileLayout kTile>
  FA3_DEV void copy_block(u8* to, const KvPlaces& from, const u8* head, int u,
                          const Place& place) const {
    constexpr u32 kWidth = static_cast<u32>(kTile.panel_width()), kChunks = kWidth / 16;
    constexpr u32 kRows = 32 / kChunks;  // of a pass
    // Registers are few where kAhead is 0.
    constexpr u32 kPasses = kAhead > 0 ? 32 / kRows : 4;
    constexpr Swizzle kSwizzle = kTile.swizzle();
    constexpr i32 kBytes = kTile.element_bytes;
    const u32 chunk = ptx::lane_index() % kChunks, row_of_lane = ptx::lane_index() / kChunks;
    const u32 block = ptx::smem_address(to) + 32 * kWidth * static_cast<u32>(u);
    const u32 even = block + panel_offset(row_of_lane, 16 * chunk, kSwizzle);
    const u32 odd =
        block + panel_offset(row_of_lane + kRows, 16 * chunk, kSwizzle) - kRows * kWidth;
    const i32 mine = cache_.has(place.entry) ? place.entry * from.entry + place.row * from.row
                                             : -1;  // −1: zeros
    FA3_NO_UNROLL
    for (u32 first = 0; first < 32; first += kRows * kPasses) {
      if (kKeys % 32 != 0 && 32 * u + static_cast<int>(first) >= kKeys) break;
      i32 steps[kPasses];  // all before the first copy: what waits for one would wait for each
      FA3_UNROLL
      for (u32 pass = 0; pass < kPasses; ++pass)
        steps[pass] = ptx::shfl_idx(mine, first + kRows * pass + row_of_lane);
      FA3_UNROLL
      for (u32 pass = 0; pass < kPasses; ++pass) {
        const u8* const data = head + i64{max(steps[pass], 0)} * from.step;
        const u32 at = (pass % 2 == 0 ? even : odd) + (first + kRows * pass) * kWidth;
        FA3_UNROLL
        for (u32 panel = 0; panel < kTile.panels(); ++panel) {
          const u32 column = static_cast<u32>(kTile.panel_columns()) * panel;
          const bool there = steps[pass] >= 0 && column + 16 / kBytes * chunk < from.columns;
          ptx::cp_async_16(at + panel * static_cast<u32>(kTile.panel_bytes()),
                           data + kBytes * column, there ? 16 : 0);
        }
      }
    }
  }

  FA3_DEV i32 first_of(i32 tile) const { return (tile - window_ * cache_.tiles) * cache_.runs; }
  FA3_DEV static i32 index(int u) { return static_cast<i32>(ptx::lane_index()) + 32 * u; }
  FA3_DEV bool in_tile(i32 tile, int u) const {
    const i32 at = index(u) - first_of(tile);
    return at >= 0 && at < cache_.runs;
  }
  FA3_DEV i32 first_key(i32 window, int u) const {
    return (window * cache_.tiles * cache_.runs + index(u)) * cache_.run;
  }
  // Of a run those that count.
  FA3_DEV i32 keys(int u) const { return clamp(kv_.used - first_key(window_, u), 0, cache_.run); }
  FA3_DEV void read(i32 window, Place (&to)[kHeld]) {
    FA3_UNROLL
    for (int u = 0; u < kHeld; ++u) to[u] = place_of(first_key(window, u));
  }
  FA3_DEV Place place_of(i32 key) const {
    if (key >= kv_.used) return {};
    const i32 row = kv_.begin + key;
    return {cache_.entry_of(batch_, row), cache_.row_of(row)};
  }

  const KvCacheArgs& cache_;
  i32 batch_ = 0, window_ = -1, ahead_ = -1;
  SequenceRows kv_;
  Place place_[kHeld];
  Place next_[kAhead > 0 ? kHeld : 1];
};

}  // namespace fa3::sm90
