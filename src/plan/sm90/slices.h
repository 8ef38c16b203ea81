// SPDX-License-Identifier: BSD-3-Clause
// slices.h — the names of the slices that more than one kernel of Hopper uses.
#pragma once

namespace fa3::sm90 {

inline constexpr const char* kVImageSlice = "v_image";
inline constexpr const char* kScoreOffsetSlice = "score_offset";
inline constexpr const char* kMaskBitsSlice = "mask_bits";
inline constexpr const char* kMaskTilesSlice = "mask_tiles";
inline constexpr const char* kMaskImageSlice = "mask_image";

}  // namespace fa3::sm90
