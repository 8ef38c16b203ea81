// SPDX-License-Identifier: BSD-3-Clause
// tile_store.h — a tile of one head of one sequence, stored by TMA.
#pragma once

#include "device/hopper/tile_layout.h"
#include "device/ptx/bulk.h"
#include "device/ptx/tma.h"
#include "device/sm90/common/ragged.h"
#include "device/sm90/common/tile_load.h"
#include "device/tensor_map.h"

namespace fa3::sm90 {

// Panels of a tile, from panel `first` on, of which `from` holds that many: to rows from `row` on.
// TMA clips rows and columns that the tensor lacks. One thread.
template <bool kRagged, TileLayout kTile, i32 kPanels>
FA3_DEV void store_panels(const TensorMap& map, const u8* from, const HeadRows& to, i32 row,
                          i32 first) {
  FA3_UNROLL
  for (i32 panel = 0; panel < kPanels; ++panel) {
    const u32 at = ptx::smem_address(from) + static_cast<u32>(panel * kTile.panel_bytes());
    const i32 column = (first + panel) * kTile.panel_columns();
    if (column >= kTile.columns) break;
    if constexpr (kRagged) {
      ptx::tma_store_5d(map, at, column, kRaggedRows - to.rows + row, to.begin + to.rows,
                        kRaggedRows, to.head);
    } else {
      ptx::tma_store_4d(map, at, column, row, to.head, to.batch);
    }
  }
  ptx::bulk_commit();
}

}  // namespace fa3::sm90
