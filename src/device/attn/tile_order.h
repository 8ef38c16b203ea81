// SPDX-License-Identifier: BSD-3-Clause
// tile_order.h — in which order a grid works through the Q tiles of all heads and sequences: heads
// in groups whose K and V fit the L2 cache, within a group tile by tile, and where tiles differ
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
  u32 head_group = 1;          // heads that run concurrently; 1 = one head after the other
  bool longest_first = false;  // later tiles see more keys (causal)

  FA3_HD constexpr u32 tiles() const { return q_tiles * heads; }

  // The index-th tile, index < tiles().
  FA3_HD constexpr QTile at(u32 index) const {
    const u32 per_group = head_group * q_tiles;
    const u32 first_head = index / per_group * head_group;
    const u32 in_group = index % per_group;
    const u32 width = heads - first_head < head_group ? heads - first_head : head_group;
    const u32 tile = in_group / width;
    return {longest_first ? q_tiles - 1 - tile : tile, first_head + in_group % width};
  }
};

}  // namespace fa3
