// SPDX-License-Identifier: BSD-3-Clause
// hide_keys.h — keys that a tile of scores has and that lie nowhere: their pages do not exist.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/types.h"
#include "device/warp/fragment.h"

namespace fa3::sm90 {

// Scores of a warp's rows for the keys first_key, … become −∞ where !is_there(key). Lanes look keys
// up side by side, 32 at a time. This is not to take registers or much code.
template <int N, class F>
FA3_DEV void hide_keys(ptx::Acc<N>& s, i32 first_key, const F& is_there) {
  const u32 lane = ptx::lane_index();
  FA3_UNROLL
  for (int w = 0; 32 * w < N; ++w) {
    const i32 key = first_key + 32 * w + static_cast<i32>(lane);
    const u32 bits = ptx::ballot(is_there(key)) >> fragment_column(lane);
    FA3_UNROLL
    for (int i = 16 * w; i < min(16 * w + 16, N / 2); ++i)
      if ((bits & (1u << (8 * (i / 4) + i % 2) % 32)) == 0) s[i] = -kInf;
  }
}

}  // namespace fa3::sm90
