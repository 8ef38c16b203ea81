// SPDX-License-Identifier: BSD-3-Clause
// tile_load.h — a tile of one head of one sequence, loaded by TMA.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/tma.h"
#include "device/sm90/common/ragged.h"
#include "device/tensor_map.h"

namespace fa3::sm90 {

// Rows of one head of one sequence, as TMA finds them.
struct HeadRows {
  i32 begin, rows, head, batch;
};

// A tile from row `row` and column `first` on, panel by panel; `full` expects the bytes of all
// panels.
template <bool kRagged, TileLayout kTile>
FA3_DEV void load_tile(u8* to, const TensorMap& map, Barrier& full, const HeadRows& from, i32 row,
                       ptx::L2Hint hint, i32 first = 0, Where where = Where::here()) {
  full.arrive_expect_tx(static_cast<u32>(kTile.bytes()), where);
  const u32 address = ptx::smem_address(to), bar = full.address();
  FA3_UNROLL
  for (u32 panel = 0; panel < kTile.panels(); ++panel) {
    const u32 at = address + panel * static_cast<u32>(kTile.panel_bytes());
    const i32 column = first + kTile.panel_columns() * static_cast<i32>(panel);
    const i32 x = kRaggedRows - from.rows + row, y = from.begin + from.rows, z = kRaggedRows;
    if constexpr (kRagged) {
      ptx::tma_load_5d(at, map, bar, column, x, y, z, from.head, hint);
    } else {
      ptx::tma_load_4d(at, map, bar, column, row, from.head, from.batch, hint);
    }
  }
}

}  // namespace fa3::sm90
