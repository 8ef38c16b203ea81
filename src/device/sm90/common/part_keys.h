// SPDX-License-Identifier: BSD-3-Clause
// part_keys.h — the numbers of keys that parts and their tiles have (key_parts.h), for host and
// device.
#pragma once

#include "device/types.h"

namespace fa3::sm90 {

inline constexpr int kPartKeys = 2048;

// Keys of a tile: of head dims alone.
FA3_HD constexpr int part_tile_kv(int head_dim_qk, int head_dim_v) {
  return max(head_dim_qk, head_dim_v) <= 128 ? 128 : 64;
}

}  // namespace fa3::sm90
