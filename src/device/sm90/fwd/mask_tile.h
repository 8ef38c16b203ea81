// SPDX-License-Identifier: BSD-3-Clause
// mask_tile.h — elements of an attn_mask that is added, from a tile that TMA has brought into
// shared memory: [queries of a consumer][keys].
#pragma once

#include "device/hopper/operand.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/memory.h"
#include "device/types.h"
#include "device/warp/fragment.h"
#include "device/warp/mask_tensor.h"

namespace fa3 {

// s += the tile's elements. In a swizzled panel, rows 8 further on are at a larger address by as
// much as without a swizzle, and other columns an exclusive or.
template <class Element, TileLayout kTile>
FA3_DEV void add_mask_tile(ptx::Acc<kTile.columns>& s, const u8* tile, u32 thread) {
  using Two = ptx::Vec<typename Element::Type, 2>;
  constexpr u32 kBytes = kTile.element_bytes, kWidth = static_cast<u32>(kTile.panel_width());
  const u32 mine =
      panel_offset(fragment_row(thread), fragment_column(thread) * kBytes, kTile.swizzle());
  FA3_UNROLL
  for (u32 column = 0; column < kTile.columns; column += 8) {
    const u32 byte = column * kBytes;
    const u8* const at = tile + byte / kWidth * kTile.panel_bytes() + (mine ^ byte % kWidth);
    FA3_UNROLL
    for (u32 h = 0; h < 2; ++h) {
      const Two two = ptx::ld_shared(reinterpret_cast<const Two*>(at + 8 * h * kWidth));
      s[column / 2 + 2 * h] += Element::value(two[0]);
      s[column / 2 + 2 * h + 1] += Element::value(two[1]);
    }
  }
}

}  // namespace fa3
