// SPDX-License-Identifier: BSD-3-Clause
// tile_layout.h — a tile in shared memory as a value: rows, columns and element size, and what
// follows from them for TMA boxes, wgmma descriptors and sizes.
//
//   [panel][row][swizzle bytes]      a panel is as wide as the swizzle; TMA loads one per box
#pragma once

#include "device/hopper/descriptor.h"
#include "device/tensor_map.h"
#include "device/types.h"

namespace fa3 {

inline constexpr int kWgThreads = 128;       // of a warpgroup
inline constexpr int kWgRows = 64;           // of A and D in one wgmma
inline constexpr int kColumnTermBytes = 16;  // of a column of D (column_term.h)

struct TileLayout {
  int rows, columns, element_bytes;

  // The widest swizzle among those that pad rows least.
  FA3_HD constexpr Swizzle swizzle() const {
    const int bytes = columns * element_bytes;
    if (bytes <= 32) return Swizzle::k32;
    const bool narrow = round_up(bytes, 64) < round_up(bytes, 128);
    return narrow ? Swizzle::k64 : Swizzle::k128;
  }
  FA3_HD constexpr int panel_width() const { return static_cast<int>(swizzle()); }  // bytes
  FA3_HD constexpr int panel_columns() const { return panel_width() / element_bytes; }
  FA3_HD constexpr int panel_bytes() const { return rows * panel_width(); }
  FA3_HD constexpr int panels() const { return row_bytes() / panel_width(); }
  FA3_HD constexpr int row_bytes() const {  // padding included
    return static_cast<int>(round_up(columns * element_bytes, panel_width()));
  }
  FA3_HD constexpr int bytes() const { return rows * row_bytes(); }
};

// A tile of 8-bit V transposed, [panel of keys][column][keys], in the widest swizzle whose panels
// the keys fill. Orders of keys and columns: transpose8.h.
struct TurnedTile {
  int keys, columns;

  FA3_HD constexpr Swizzle swizzle() const {
    return keys % 128 == 0 ? Swizzle::k128 : keys % 64 == 0 ? Swizzle::k64 : Swizzle::k32;
  }
  FA3_HD constexpr int panel_width() const { return static_cast<int>(swizzle()); }  // keys
  FA3_HD constexpr int panel_bytes() const { return columns * panel_width(); }
  FA3_HD constexpr int bytes() const { return columns * keys; }
  constexpr bool operator==(const TurnedTile&) const = default;
};

// The tile as an operand of wgmma: rows along K of the GEMM, or along M or N.
template <TileLayout kTile>
using KMajorOperand = KMajorTile<kTile.swizzle(), static_cast<u32>(kTile.panel_bytes())>;
template <TileLayout kTile>
using MnMajorOperand = MnMajorTile<kTile.swizzle(), static_cast<u32>(kTile.panel_bytes())>;

}  // namespace fa3
