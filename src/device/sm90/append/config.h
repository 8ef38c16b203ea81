// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the kernel that appends to a cache, as a value.
#pragma once

#include "device/ptx/mma_types.h"
#include "device/sm90/common/float_type.h"
#include "device/types.h"

namespace fa3::sm90 {

inline constexpr int kAppendPiece = 8;  // columns that are copied, or pairs that are rotated

struct AppendConfig {
  MmaType type = MmaType::kBf16;
  FloatType table = FloatType::kF32;  // of cosines and sines

  static constexpr int kThreads = 128;
  static constexpr int kWarps = kThreads / 32;

  constexpr bool operator==(const AppendConfig&) const = default;
};

}  // namespace fa3::sm90
