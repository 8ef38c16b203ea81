// SPDX-License-Identifier: BSD-3-Clause
// rotated.h — what the roles of the kernel for rotated rows share: tiles, and the shared memory by
// which they and the rows of x go from producers to consumers.
// BARRIERS  tile_known[stage]: count 1; what the tile is.
//           tile_full[stage]: count 32, the lanes of the stage's producer.
//           tile_empty[stage]: count consumers + 1, that of x: have no more use for the tile.
//           x_full[consumer]: count 1, bytes.  x_empty[consumer]: count 1, all its lanes have read.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/ring.h"
#include "device/sm90/quantize/pack.h"

namespace fa3::sm90 {

// A tile: rows of a sequence in some heads. From its first row and head on: how many rows count,
// are of the tensor and have scales, which may be none or more than the tile has; and where codes
// and scales go.
struct alignas(16) TileRows {
  i32 used, rows, scaled;
  i32 heads;  // 0: there is no tile any more

  FA3_DEV bool counts() const { return used > 0; }
};
struct alignas(16) TileTarget {
  u8* codes;
  float* scale;
};
// Its first row and head in x, its sequence, and its number.
struct alignas(16) RotatedSource {
  i32 row, head, sequence, tile;
};

// What a warp codes of a tile at a time: rows from `row` on, in a head.
struct TilePart {
  i32 row, head;
};
template <RotatedConfig kCfg>
FA3_DEV TilePart part_of(i32 heads, i32 i) {
  const bool second = kCfg.row_blocks == 2 && i >= heads;
  return {second ? kCfg.warp_rows() : 0, i - (second ? heads : 0)};
}

template <RotatedConfig kCfg>
struct RotatedSmem {
  alignas(1024) u8 x[kCfg.consumers()][kCfg.x_bytes()];
  alignas(16) float table[kCfg.kStages][2][kCfg.rows()][kCfg.table_pitch()];
  alignas(16) u8 codes[kCfg.consumers()][kCfg.warp_rows()][kCfg.code_pitch()];
  alignas(16) u16 sign[kCfg.codes.turn.head_dim];  // bit 15
  TileRows rows[kCfg.kStages];
  TileTarget target[kCfg.kStages];
  RotatedSource source[kCfg.kStages];
  Barrier tile_known[kCfg.kStages], tile_full[kCfg.kStages], tile_empty[kCfg.kStages];
  Barrier x_full[kCfg.consumers()], x_empty[kCfg.consumers()];
  FA3_NAMED(x, table, codes, sign, rows, target, source, tile_known, tile_full, tile_empty, x_full,
            x_empty)

  FA3_DEV void init_barriers() {
    FA3_UNROLL
    for (int s = 0; s < kCfg.kStages; ++s)
      tile_known[s].init(1), tile_full[s].init(32), tile_empty[s].init(kCfg.consumers() + 1);
    FA3_UNROLL
    for (int c = 0; c < kCfg.consumers(); ++c) x_full[c].init(1), x_empty[c].init(1);
  }
};

}  // namespace fa3::sm90
