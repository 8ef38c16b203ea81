// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the kernel that merges a caller's parts, as a value.
#pragma once

#include "device/sm90/common/float_type.h"
#include "device/types.h"

namespace fa3::sm90 {

struct MergeConfig {
  FloatType parts = FloatType::kF32;  // of o_parts
  FloatType o = FloatType::kF32;

  static constexpr int kThreads = 128;
  static constexpr int kLanes = 16;                  // that share a piece of a row
  static constexpr int kPieces = kThreads / kLanes;  // of a CTA
  static constexpr int kParts = 8;                   // in flight

  constexpr bool operator==(const MergeConfig&) const = default;

  // Neighbouring columns of a lane, which one access of 16 bytes moves; columns of a piece.
  FA3_HD constexpr int lane_columns() const { return 16 / size_of(parts); }
  FA3_HD constexpr int columns() const { return kLanes * lane_columns(); }
};

}  // namespace fa3::sm90
