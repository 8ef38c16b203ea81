// SPDX-License-Identifier: BSD-3-Clause
// store_rows.h — a consumer's dK or dV of a KV tile, from its registers to the tensor.
#pragma once

#include "device/hopper/operand.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/memory.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/tensor.h"
#include "device/sm90/bwd/work.h"
#include "device/warp/fragment.h"

namespace fa3::sm90 {

// Whose rows: those of a consumer's keys in the CTA's KV tile.
struct RowsOf {
  const BwdArgs& args;
  const BwdWork& work;
  u32 wg, thread;  // among the consumers; in the consumer
};

// FP32 two neighbours at a time, 16 bits by way of the consumer's rows of `tile`.
template <BwdConfig kCfg, TileLayout kTile, int N>
FA3_DEV void store_rows(const RowsOf& of, const BwdTensor& to, const ptx::Acc<N>& acc, i32 columns,
                        u8* tile) {
  constexpr MmaType kType = kCfg.dtype;
  const BwdWork& work = of.work;
  const u32 own_keys = kCfg.own_keys() * of.wg;
  if (to.data == nullptr) return;
  const i64 first = work.batch * to.batch +
                    (i64{first_row(of.args.kv_axis, work.kv)} + work.key) * to.row +
                    work.head_kv * to.head;
  if (to.f32) {
    FA3_UNROLL
    for (u32 h = 0; h < 2; ++h) {
      const i32 row = static_cast<i32>(own_keys + fragment_row(of.thread) + 8 * h);
      if (work.key + row >= work.kv.rows) continue;
      FA3_UNROLL
      for (int c = 0; c < N; c += 8) {
        if (c >= columns) break;
        store_two<kType>(to, first + row * to.row + c + fragment_column(of.thread),
                         acc[c / 2 + 2 * h], acc[c / 2 + 2 * h + 1]);
      }
    }
    return;
  }
  using Chunk = ptx::Vec<u32, 4>;
  // Of 16 bytes: so many are a row. A warp's 16 rows take so many turns, a few at a time.
  constexpr u32 kChunks = N / 8, kRows = 32 / kChunks, kTurns = 16 / kRows;
  static_assert(32 % kChunks == 0, "whole rows a turn");
  constexpr u32 kAtOnce = min(kTurns, 8u), kWidth = static_cast<u32>(kTile.panel_width());
  u8* const own = tile + own_keys * static_cast<u32>(kTile.panel_width());
  ptx::warp_sync();  // who has read what lay there  sim:spare(again)
  store_operand16<kType, kTile.swizzle()>(own, acc, kTile.rows);
  ptx::warp_sync();
  const u32 lane = ptx::lane_index(), at = 16 * (lane % kChunks);
  const u32 row = 16 * (ptx::warp_index() % 4) + lane / kChunks;
  const u8* const panel = own + at / kWidth * static_cast<u32>(kTile.panel_bytes());
  const i32 own_key = static_cast<i32>(own_keys + row);
  u16* const out = static_cast<u16*>(to.data) + first + own_key * to.row + at / 2;
  const i32 rows = static_cast<i32>(at / 2) < columns ? work.kv.rows - work.key - own_key : 0;
  FA3_UNROLL
  for (u32 turn = 0; turn < kTurns; turn += kAtOnce) {
    Chunk chunks[kAtOnce];
    FA3_UNROLL
    for (u32 i = 0; i < kAtOnce; ++i)
      chunks[i] = ptx::ld_shared(reinterpret_cast<const Chunk*>(
          panel + panel_offset(row + kRows * (turn + i), at % kWidth, kTile.swizzle())));
    FA3_UNROLL
    for (u32 i = 0; i < kAtOnce; ++i) {
      const i32 of_turn = static_cast<i32>(kRows * (turn + i));
      if (of_turn < rows)
        ptx::st_global(reinterpret_cast<Chunk*>(out + of_turn * to.row), chunks[i]);
    }
  }
}

}  // namespace fa3::sm90
