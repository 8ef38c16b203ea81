// SPDX-License-Identifier: BSD-3-Clause
// q_tiles.h — which Q tile of which head and sequence a CTA works on next, and which KV tiles its
// band shows. One warp, all lanes alike.
#pragma once

#include "device/attn/tile_order.h"
#include "device/attn/tile_range.h"
#include "device/ptx/atomic.h"
#include "device/ptx/grid.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/work.h"
#include "device/warp/sequence_rows.h"
#include "device/warp/sequence_search.h"

namespace fa3::sm90 {

// The Q tiles of a CTA, one after another. kCfg has tile.q() and .kv, load.ragged and .cached();
// kOneTile: a CTA takes one. Args names the tiles: q_axis, kv_axis, cache, batch, heads_q, band,
// order, next_tile.
template <auto kCfg, bool kOneTile, class Args>
class QTiles {
 public:
  FA3_DEV explicit QTiles(const Args& args) : args_(args), index_(ptx::block_index_x()) {}

  // The first tile, or the one after the last that was returned.
  FA3_DEV FwdWork next() {
    if (!first_) advance();
    first_ = false;
    i32 batch = 0;
    QTile at{};
    if (kCfg.load.ragged && args_.q_axis.cu_seqlens != nullptr) {
      // Rows of no sequence last.
      const SequenceSearch::Found found = search_.find(args_.batch, index_, [&](i32 b) {
        i32 rows = b <= args_.batch ? rows_of<true>(args_.q_axis, args_.batch, b).rows : 0;
        if constexpr (kCfg.load.cached())
          if (b < args_.batch && rows <= args_.skipped_rows) rows = 0;
        return static_cast<u32>((rows + kCfg.tile.q() - 1) / kCfg.tile.q()) *
               static_cast<u32>(args_.heads_q);
      });
      if (found.batch < 0) return none();
      batch = found.batch;
      TileOrder order = args_.order;
      order.heads = static_cast<u32>(args_.heads_q), order.q_tiles = found.tiles / order.heads;
      at = order.at(found.index);
    } else {
      if (index_ >= args_.order.tiles()) return none();
      at = args_.order.at(index_);
      batch = static_cast<i32>(at.head / static_cast<u32>(args_.heads_q));
      at.head %= static_cast<u32>(args_.heads_q);
    }
    const SequenceRows q = rows_of<kCfg.load.ragged>(args_.q_axis, args_.batch, batch);
    // Rows of no sequence have no keys either.
    const bool owned = batch < args_.batch;
    const SequenceRows kv = owned ? keys_of(batch) : SequenceRows{};
    const i32 tile = static_cast<i32>(at.tile);
    return {tile_range(args_.template band<kCfg.mask.kind>(), q.used, kv.used, tile * kCfg.tile.q(),
                       kCfg.tile.q(), kCfg.tile.kv),
            tile,
            static_cast<i32>(at.head),
            batch,
            q.begin,
            q.rows,
            q.used,
            kv.begin,
            kv.used};
  }

 private:
  FA3_DEV SequenceRows keys_of(i32 batch) const {
    if constexpr (kCfg.load.cached()) return args_.cache.rows_of(args_.kv_axis, batch);
    return rows_of<kCfg.load.ragged>(args_.kv_axis, args_.batch, batch);
  }
  FA3_DEV static FwdWork none() { return {{}, -1, 0, 0, 0, 0, 0, 0, 0}; }

  FA3_DEV void advance() {
    if constexpr (kOneTile) {
      index_ = ~0u;
    } else {
      u32 taken = index_;  // without a counter
      if (args_.next_tile != nullptr && ptx::lane_index() == 0)
        taken = ptx::atom_add_u32(args_.next_tile, 1);
      index_ = ptx::grid_dim_x() + ptx::shfl_idx(taken, 0);
    }
  }

  const Args& args_;
  u32 index_;
  bool first_ = true;
  SequenceSearch search_;
};

}  // namespace fa3::sm90
