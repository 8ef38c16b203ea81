// SPDX-License-Identifier: BSD-3-Clause
// score_offset_config.h — one variant of the kernel that finds what k_offset adds to scores, as a
// value.
#pragma once

#include "device/types.h"

namespace fa3::sm90 {

struct ScoreOffsetConfig {
  static constexpr int kThreads = 256;
  static constexpr int kPiece = 16;  // columns of a lane

  bool is_i8 = false;  // q, else E4M3
  int lanes = 8;       // that share a row, a power of two of at least head_dim / kPiece

  constexpr bool operator==(const ScoreOffsetConfig&) const = default;
  FA3_HD constexpr int rows() const { return kThreads / lanes; }
};

}  // namespace fa3::sm90
