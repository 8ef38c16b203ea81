// SPDX-License-Identifier: BSD-3-Clause
// configs.h — the variants of the quantising kernels that the simulator has; on a GPU any
// other is compiled when it is asked for.
#pragma once

#include "device/sm90/quantize/config.h"

namespace fa3::sm90 {

inline constexpr TurnConfig kTurnsAhead[] = {
    // The recipes of `precision`: V as it is; Q and K turned.
    {.x = FloatType::kBf16, .head_dim = 64},
    {.x = FloatType::kF16, .head_dim = 64},
    {.x = FloatType::kBf16, .head_dim = 64, .hadamard = 64},
    {.x = FloatType::kF16, .head_dim = 64, .hadamard = 64},
    {.x = FloatType::kBf16, .head_dim = 128},
    {.x = FloatType::kBf16, .head_dim = 128, .hadamard = 128},
    {.x = FloatType::kBf16, .head_dim = 256, .hadamard = 256},
    // Other lanes and blocks, tables of each type.
    {.x = FloatType::kF32, .head_dim = 16, .hadamard = 4},
    {.x = FloatType::kF16,
     .head_dim = 80,
     .hadamard = 16,
     .rotary = RotaryKind::kHalves,
     .rotary_dim = 32,
     .table = FloatType::kF16},
    {.x = FloatType::kF32,
     .head_dim = 64,
     .hadamard = 64,
     .rotary = RotaryKind::kPairs,
     .rotary_dim = 48,
     .table = FloatType::kBf16,
     .block_cols = 32},
    {.x = FloatType::kBf16,
     .head_dim = 64,
     .hadamard = 64,
     .rotary = RotaryKind::kHalves,
     .rotary_dim = 64},
    {.x = FloatType::kBf16,
     .head_dim = 128,
     .hadamard = 128,
     .rotary = RotaryKind::kHalves,
     .rotary_dim = 128},
    {.x = FloatType::kF16,
     .head_dim = 256,
     .hadamard = 256,
     .rotary = RotaryKind::kHalves,
     .rotary_dim = 256},
    {.x = FloatType::kBf16,
     .head_dim = 256,
     .hadamard = 256,
     .rotary = RotaryKind::kPairs,
     .rotary_dim = 128,
     .table = FloatType::kBf16},
};

// Rows of a block that a CTA holds, in those kernels.
inline constexpr int kBlockRowsAhead[] = {64, 128};

}  // namespace fa3::sm90
