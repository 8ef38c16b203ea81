// SPDX-License-Identifier: BSD-3-Clause
// kinds.h — masks and score functions as kernels are compiled for them.
#pragma once

#include "device/types.h"

namespace fa3 {

enum class MaskKind : u8 { kFull, kCausal, kWindow, kChunk };  // kChunk: and any of the others
// Do rows have first keys other than 0?
FA3_HD constexpr bool has_left_edge(MaskKind mask) {
  return mask == MaskKind::kWindow || mask == MaskKind::kChunk;
}

// What happens to a score before the mask: nothing (the scale is folded into exp2), softcap·tanh,
// or a multiplication by the scale (negative ones, which turn the maximum into a minimum).
enum class ScoreKind : u8 { kPlain, kSoftcap, kScaled };

// attn_mask: its elements, which hide keys (bytes) or are added to scores (FP32, or 16 bits as q).
enum class MaskTensor : u8 { kNone, kBool, kF32, k16 };
FA3_HD constexpr bool adds_to_scores(MaskTensor mask) {
  return mask == MaskTensor::kF32 || mask == MaskTensor::k16;
}

// How keys and values come: as tensors, dense or packed; or from a cache, in whole tiles, in runs
// of keys that lie next to each other, or row by row.
enum class KvSource : u8 { kTensor, kTiles, kRuns, kRows };

}  // namespace fa3
