// SPDX-License-Identifier: BSD-3-Clause
// rotated.h — what the roles of the kernel for rotated rows share: tiles, and the shared memory by
// which they and the rows of x go from producers to consumers.
// BARRIERS  tile_known[stage]: count 1; what the tile is.
//           tile_full[stage]: count 96, the lanes of the tables' producers.
//           tile_empty[stage]: count consumers + 1, that of x: have no more use for the tile.
//           x_full[consumer]: count 1, bytes.  x_empty[consumer]: count 1, all its lanes have read.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/ring.h"
#include "device/sm90/quantize/pack.h"

namespace fa3::sm90 {

// A tile: rows from `first` on of a sequence (SequenceRows), in some heads.
struct alignas(16) TileRows {
  i32 begin, rows, used, first;

  FA3_DEV bool counts() const { return first < used; }
};
struct alignas(16) TileHeads {
  i32 b, head, heads;  // from `head` on; no heads: there is no tile any more
};

template <RotatedConfig kCfg>
struct RotatedSmem {
  alignas(1024) u8 x[kCfg.consumers()][kCfg.x_bytes()];
  alignas(16) float table[kCfg.kStages][2][kCfg.rows()][kCfg.table_pitch()];
  ptx::Vec<u32, 4> raw[2][kCfg.pieces_of_thread()][32 * kCfg.kTableWarps];  // of the next tables
  alignas(16) u8 codes[kCfg.consumers()][kCfg.rows()][kCfg.code_pitch()];
  alignas(16) u16 sign[kCfg.codes.turn.head_dim];  // bit 15
  TileRows tile[kCfg.kStages];
  TileHeads heads[kCfg.kStages];
  Barrier tile_known[kCfg.kStages], tile_full[kCfg.kStages], tile_empty[kCfg.kStages];
  Barrier x_full[kCfg.consumers()], x_empty[kCfg.consumers()];
  FA3_NAMED(x, table, raw, codes, sign, tile, heads, tile_known, tile_full, tile_empty, x_full,
            x_empty)

  FA3_DEV void init_barriers() {
    FA3_UNROLL
    for (int s = 0; s < kCfg.kStages; ++s)
      tile_known[s].init(1), tile_full[s].init(32 * kCfg.kTableWarps),
          tile_empty[s].init(kCfg.consumers() + 1);
    FA3_UNROLL
    for (int c = 0; c < kCfg.consumers(); ++c) x_full[c].init(1), x_empty[c].init(1);
  }
};

}  // namespace fa3::sm90
