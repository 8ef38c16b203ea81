// SPDX-License-Identifier: BSD-3-Clause
// load_q.h — a consumer's packed rows of Q, from anywhere in memory into its tile.
#pragma once

#include "device/hopper/swizzle.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/vec.h"
#include "device/sm90/decode/args.h"
#include "device/sm90/decode/config.h"
#include "device/sm90/decode/unit.h"

namespace fa3::sm90 {

using QChunk = ptx::Vec<u32, 4>;

// row: packed, counted from the unit's first.
template <DecodeConfig kCfg>
FA3_DEV QChunk q_chunk(const DecodeArgs& args, const DecodeUnit& unit, u32 row, u32 chunk) {
  const auto [query, head] = packed_row(args.shape, unit, row);
  if (query >= unit.q.used || static_cast<i32>(8 * chunk) >= args.head_dim_qk)
    return {{0, 0, 0, 0}};
  const i64 at = first_row(args.shape.q_axis, unit.q) + query;
  return ptx::ld_global_nc(reinterpret_cast<const QChunk*>(
      args.q + unit.batch * args.q_batch + at * args.q_row + head * args.q_head + 8 * chunk));
}

// Rows first, first + 1, … of the unit by the threads of a consumer, in chunks of 16 bytes, of
// which as many as leave together: a load that is waited for takes as long as a KV tile. Rows that
// do not count are zeros, as are columns that the tensor lacks.
template <DecodeConfig kCfg>
FA3_DEV void load_q(u8* to, const DecodeArgs& args, const DecodeUnit& unit, u32 first, u32 thread) {
  constexpr u32 kRows = kCfg.consumer_rows(), kChunks = kCfg.head_dim_qk / 8, kAtATime = 8;
  constexpr u32 kAll = kRows * kChunks, kWidth = kCfg.q_tile().panel_width();
  FA3_UNROLL
  for (u32 begin = 0; begin < kAll; begin += kAtATime * kWgThreads) {
    QChunk x[kAtATime];
    FA3_UNROLL
    for (u32 u = 0; u < kAtATime; ++u) {
      const u32 at = begin + u * kWgThreads + thread;
      if (begin + u * kWgThreads >= kAll) continue;
      x[u] = QChunk{{0, 0, 0, 0}};
      if (at < kAll) x[u] = q_chunk<kCfg>(args, unit, first + at / kChunks, at % kChunks);
    }
    FA3_UNROLL
    for (u32 u = 0; u < kAtATime; ++u) {
      const u32 at = begin + u * kWgThreads + thread;
      if (begin + u * kWgThreads >= kAll || at >= kAll) continue;
      const u32 bytes = 16 * (at % kChunks);
      u8* const panel = to + bytes / kWidth * kCfg.q_tile().panel_bytes();
      ptx::st_shared(reinterpret_cast<QChunk*>(panel + panel_offset(at / kChunks, bytes % kWidth,
                                                                    kCfg.q_tile().swizzle())),
                     x[u]);
    }
  }
}

}  // namespace fa3::sm90
