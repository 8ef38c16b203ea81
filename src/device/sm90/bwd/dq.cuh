// SPDX-License-Identifier: BSD-3-Clause
// dq.cuh — behind the backward's main kernel: dQ from its sums, which lie in the order of
// registers.
// CONTRACT  every row of the tensor is written, 0 where it does not count. cu_seqlens and seqused
//           may hold anything.
// GRID      x: Q tiles of the longest sequence · y: query heads · z: sequences, and with cu_seqlens
//           one more, the rows of none
#pragma once

#include "device/hopper/fragment.h"
#include "device/ptx/grid.h"
#include "device/ptx/thread.h"
#include "device/sm90/bwd/fixed.h"
#include "device/sm90/bwd/tensor.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

// Where the first of four sums lies that follow one another from element 4·i of a tile on: its two
// neighbours in a row, and those 8 rows below.
template <BwdConfig kCfg>
FA3_HD constexpr Place dq_place(u32 i) {
  constexpr u32 kColumns = static_cast<u32>(kCfg.dq_columns()), kPart = kWgRows * kColumns / 4;
  const u32 part = i / kPart, group = i % kPart / kWgThreads, thread = i % kWgThreads;
  const Place own{fragment_row(thread), 8 * group + fragment_column(thread)};
  if (kCfg.dq_by_rows()) return {own.row + kWgRows * part, own.column};
  return {own.row, own.column + kColumns * part};
}

// ±∞ or NaN where consumers noted it: in two of the four sums from element 4·i on, the first of
// which is `first`.
template <BwdConfig kCfg>
FA3_DEV void put_flagged(const u32* flags, u32 i, int first, float (&two)[2]) {
  constexpr u32 kGroups = 8;  // of four, of a thread's piece
  const u32* const words = flags + i / (kGroups * kWgThreads) * (2 * kWgThreads) + i % kWgThreads;
  const u32 bit = 4 * (i / kWgThreads % kGroups) + static_cast<u32>(first);
  const u32 up = ptx::ld_global(words) >> bit, down = ptx::ld_global(words + kWgThreads) >> bit;
  FA3_UNROLL
  for (int k = 0; k < 2; ++k) {
    if ((up >> k & 1) != 0) two[k] = kInf;
    if ((down >> k & 1) != 0) two[k] = (up >> k & 1) != 0 ? kInf - kInf : -kInf;
  }
}

template <BwdConfig kCfg>
FA3_KERNEL(kBwdRowThreads)
void bwd_dq(FA3_GRID_CONSTANT const BwdDqArgs args) {
  ptx::pdl_launch();
  ptx::pdl_wait();
  const BwdQTile work = BwdQTile::of_cta<kCfg>(args.q_axis, args.batch);
  const SequenceRows& rows = work.rows;
  const i32 tile = work.tile, head = work.head, b = work.batch;
  using Four = ptx::Vec<u32, 4>;
  // Rows of no sequence have no tiles.
  const i64 at = b < args.batch ? args.tiles.first(b, head, rows.begin, kCfg.tile_q) + tile : 0;
  const auto* const sums = reinterpret_cast<const Four*>(args.dq_sum + at * kCfg.dq_sums());
  [[maybe_unused]] const float* const scales =
      args.stats + at * kCfg.stats_and_scales() + kCfg.stats() * kCfg.tile_q;
  const i32 step = static_cast<i32>(ptx::grid_dim_x()) * kCfg.tile_q;
  for (i32 first = kCfg.tile_q * tile; first < rows.rows; first += step) {
    FA3_NO_UNROLL
    for (u32 i = ptx::thread_index(); i < static_cast<u32>(kCfg.dq_sums() / 4);
         i += kBwdRowThreads) {
      const Place place = dq_place<kCfg>(i);
      if (static_cast<i32>(place.column) >= args.head_dim_qk) continue;
      const Four four = first < rows.used ? ptx::ld_global(sums + i) : Four{};
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        const i32 row = first + static_cast<i32>(place.row) + 8 * h;
        if (row >= rows.rows) continue;
        const bool counts = row < rows.used;
        const i64 to = b * args.dq.batch + (i64{first_row(args.q_axis, rows)} + row) * args.dq.row +
                       head * args.dq.head + place.column;
        float two[2];
        FA3_UNROLL
        for (int k = 0; k < 2; ++k) two[k] = ptx::bits_as<float>(four[2 * h + k]);
        if constexpr (kCfg.deterministic) {
          const float scale =
              counts ? ptx::ld_global(scales + stats_place(static_cast<i32>(place.row) + 8 * h))
                     : 1.f;
          const float unit = fixed_unit(scale);
          FA3_UNROLL
          for (int k = 0; k < 2; ++k)
            two[k] = static_cast<float>(static_cast<i32>(four[2 * h + k])) * unit;
          if (scale < 0) put_flagged<kCfg>(args.dq_flag + at * kCfg.dq_flags(), i, 2 * h, two);
        }
        store_two<kCfg.dtype>(args.dq, to, counts ? two[0] * args.scale : 0.f,
                              counts ? two[1] * args.scale : 0.f);
      }
    }
  }
}

}  // namespace fa3::sm90
