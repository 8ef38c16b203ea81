// SPDX-License-Identifier: BSD-3-Clause
// part_keys.h — how many keys parts and their tiles have (key_parts.h), for host and device.
#pragma once

#include "device/types.h"

namespace fa3::sm90 {

inline constexpr int kPartKeys = 2048;

inline constexpr int kPartTileKv = 64;  // keys of a tile: the least that the decode kernel has
inline constexpr int kPartTiles = kPartKeys / kPartTileKv;

}  // namespace fa3::sm90
