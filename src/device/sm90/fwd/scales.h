// SPDX-License-Identifier: BSD-3-Clause
// scales.h — the scales and offsets of 8-bit tensors, as a consumer reads them. Scales of the codes
// of Q and K are a factor of the scores of a row; V's scale is a factor of O.
#pragma once

#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/work.h"
#include "device/types.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// The scale of a row of a sequence whose first row in the tensor is `begin`. Lengths in device
// memory may be wrong: the block is clamped to the tensor.
FA3_DEV float scale_at(const FwdScale& scale, const FwdWork& work, i32 begin, i32 row) {
  if (scale.data == nullptr) return 1.f;
  i32 block = 0;
  if (scale.by_total_row) {
    block = begin + row;
  } else if (scale.block_rows > 0) {
    block = min(row / scale.block_rows, scale.blocks - 1);
  }
  return ptx::ld_global_nc(scale.data + work.batch * scale.batch + block * scale.row +
                           work.head / scale.group_size * scale.head);
}

// The scale of one KV tile after another, the last first, where blocks have whole tiles.
template <i32 kTileKv>
struct BlockWalk {
  const float* at;
  i32 left;  // tiles of the block before its first

  FA3_DEV void begin(const FwdScale& scale, const FwdWork& work, i32 kv_tile) {
    const i32 row = kTileKv * kv_tile, rows = scale.block_rows;
    const i32 block = rows > 0 ? min(row / rows, scale.blocks - 1) : 0;
    at = scale.data + work.batch * scale.batch + work.head / scale.group_size * scale.head +
         block * scale.row;
    left = rows > 0 ? (row - block * rows) / kTileKv : kv_tile;
  }
  FA3_DEV float next(const FwdScale& scale) {
    if (scale.data == nullptr) return 1.f;
    const float value = ptx::ld_global_nc(at);
    if (left-- == 0) {
      at -= scale.row;
      left = scale.block_rows / kTileKv - 1;
    }
    return value;
  }
};

// Scales of K and V that change from tile to tile.
template <FwdConfig kCfg>
struct BlockScales {
  BlockWalk<kCfg.tile_kv> of_k, of_v;
  float k;          // of the tile whose scores are made
  float v, next_v;  // of the tile whose P is multiplied, and of that of k

  FA3_DEV void begin(const FwdArgs& args, const FwdWork& work, i32 kv_tile) {
    of_k.begin(args.k_scale, work, kv_tile);
    if constexpr (kCfg.v8()) of_v.begin(args.v_scale, work, kv_tile);
  }
  // Loads those of the next tile, in front of a GEMM that hides it.
  FA3_DEV void load(const FwdArgs& args) {
    k = of_k.next(args.k_scale);
    if constexpr (kCfg.v8()) next_v = of_v.next(args.v_scale);
  }
  // P is that tile's now.
  FA3_DEV void next() { v = next_v; }
};

// What the scores of a thread's two rows, from `row` on, are multiplied by, without scales of
// blocks of K. A tile without keys or rows that count has no scales to be read.
template <bool kBlockScales>
FA3_DEV PerRow code_scale(const FwdArgs& args, const FwdWork& work, i32 row) {
  PerRow scale{{1.f, 1.f}};
  if (work.range.empty()) return scale;
  const float of_k = kBlockScales ? 1.f : scale_at(args.k_scale, work, 0, 0);
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    const i32 r = min(row + 8 * h, work.q_used - 1);
    scale.row[h] = of_k * scale_at(args.q_scale, work, work.q_begin, r);
  }
  return scale;
}

// What k_offset adds to the scores of a row that counts, in units of the natural logarithm.
FA3_DEV float score_offset_at(const FwdArgs& args, const FwdWork& work, i32 row) {
  if (args.score_offset == nullptr || work.range.empty()) return 0.f;
  const i64 first = args.q_axis.cu_seqlens != nullptr ? work.q_begin : 0;
  return ptx::ld_global(args.score_offset + work.batch * args.score_offset_batch +
                        work.head * args.score_offset_head + first + row);
}

// A factor of scores that may be masked already. NaN stays: INT8 codes have none, so the scale of a
// block says that it held one.
FA3_DEV float finite_factor(float factor) {
  return -ptx::max_nan(-ptx::max_nan(factor, 0x1p-126f), -0x1.fffffep127f);
}

}  // namespace fa3::sm90
