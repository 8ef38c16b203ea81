// SPDX-License-Identifier: BSD-3-Clause
// tile_order.h — in which order a grid works through the Q tiles of all heads and sequences: heads
// in sections whose K and V fit the L2 cache, within a section tile by tile, and where tiles differ
// in length the longest first, so that the last ones to run are short.
#pragma once

#include "device/types.h"

namespace fa3 {

struct QTile {
  u32 tile;  // of the queries
  u32 head;  // over batch and query heads: batch · heads_q + head
};

// Sequences of equal length: every head has the same number of tiles.
struct TileOrder {
  u32 q_tiles = 0;             // per head
  u32 heads = 0;               // batch · heads_q
  u32 section = 1;             // heads that run side by side; 1 = a head's tiles follow another
  bool longest_first = false;  // later tiles see more keys (causal)

  FA3_HD constexpr u32 tiles() const { return q_tiles * heads; }

  // The index-th tile, index < tiles().
  FA3_HD constexpr QTile at(u32 index) const {
    const u32 per_section = section * q_tiles;
    const u32 first_head = index / per_section * section;
    const u32 in_section = index % per_section;
    const u32 width = heads - first_head < section ? heads - first_head : section;
    const u32 tile = in_section / width;
    return {longest_first ? q_tiles - 1 - tile : tile, first_head + in_section % width};
  }
};

}  // namespace fa3
