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

template <BwdConfig kCfg>
FA3_KERNEL(kBwdRowThreads)
void bwd_dq(FA3_GRID_CONSTANT const BwdDqArgs args) {
  ptx::pdl_launch();
  ptx::pdl_wait();
  const BwdQTile work = BwdQTile::of_cta<kCfg>(args.q_axis, args.batch);
  const SequenceRows& rows = work.rows;
  const i32 tile = work.tile, head = work.head, b = work.batch;
  using Four = ptx::Vec<float, 4>;
  // Rows of no sequence have no tiles.
  const i64 at = b < args.batch ? args.tiles.first(b, head, rows.begin, kCfg.tile_q) + tile : 0;
  const auto* const sums = reinterpret_cast<const Four*>(args.dq_sum + at * kCfg.dq_floats());
  const i32 step = static_cast<i32>(ptx::grid_dim_x()) * kCfg.tile_q;
  for (i32 first = kCfg.tile_q * tile; first < rows.rows; first += step) {
    FA3_NO_UNROLL
    for (u32 i = ptx::thread_index(); i < static_cast<u32>(kCfg.dq_floats() / 4);
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
        store_two<kCfg.dtype>(args.dq, to, counts ? four[2 * h] * args.scale : 0.f,
                              counts ? four[2 * h + 1] * args.scale : 0.f);
      }
    }
  }
}

}  // namespace fa3::sm90
