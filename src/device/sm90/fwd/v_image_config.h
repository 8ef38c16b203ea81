// SPDX-License-Identifier: BSD-3-Clause
// v_image_config.h — one variant of the kernel that transposes 8-bit V, as a value.
#pragma once

#include "device/hopper/tile_layout.h"
#include "device/types.h"

namespace fa3::sm90 {

struct VImageConfig {
  static constexpr int kThreads = 128;

  TurnedTile tile;      // of the forward kernel
  bool ragged = false;  // as in FwdConfig

  constexpr bool operator==(const VImageConfig&) const = default;

  FA3_HD constexpr TileLayout raw_tile() const { return {tile.keys, tile.columns, 1}; }
  FA3_HD constexpr int smem_bytes() const {
    constexpr int kAlign = 1024;
    return static_cast<int>(round_up(raw_tile().bytes(), kAlign) + round_up(tile.bytes(), kAlign) +
                            kAlign);
  }
};

}  // namespace fa3::sm90
