// SPDX-License-Identifier: BSD-3-Clause
// delta.cuh — before the backward's main kernel: δ = Σ O·dO − dLSE and LSE of every row, in the
// order of Q tiles; sums of dQ set to 0, or those of the first heads, and what counts the others.
// CONTRACT  rows that do not count, and those that see no key (LSE = −∞), get LSE = +∞, so P = 0.
//           cu_seqlens and seqused may hold anything.
// GRID      x: Q tiles of the longest sequence · y: query heads · z: sequences
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/bound.cuh"
#include "device/sm90/bwd/finder.h"
#include "device/sm90/bwd/row_share.h"
#include "device/sm90/bwd/tensor.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct DeltaSmem {
  RowShare<kCfg.tile_q, kCfg.head_dim_v> o, dout;  // o: of 16 bits
  FA3_NAMED(o, dout)
};

template <BwdConfig kCfg>
FA3_KERNEL(kBwdRowThreads)
void bwd_delta(FA3_GRID_CONSTANT const BwdDeltaArgs args) {
  using Share = RowShare<kCfg.tile_q, kCfg.head_dim_v>;
  constexpr i32 kTurns = Share::kTurns, kLanes = Share::kLanes;
  constexpr float kUnit = kCfg.adds_mask() ? 1.f : kLog2e;  // of LSE and slopes
  auto& smem = ptx::smem_as<DeltaSmem<kCfg>>();
  static_assert(sizeof smem == kCfg.delta_smem_bytes(), "the launch has another size");
  ptx::pdl_launch();
  ptx::pdl_wait();
  const BwdQTile work = BwdQTile::of_cta<kCfg>(args.q_axis, args.batch);
  const SequenceRows& rows = work.rows;
  const i32 tile = work.tile, head = work.head, b = work.batch;
  if (tile > 0 && tile * kCfg.tile_q >= rows.rows) return;
  const i64 at = args.tiles.first(b, head, rows.begin, kCfg.tile_q) + tile;
  const i32 thread = Share::thread(), first = kCfg.tile_q * tile;
  // Of a tensor's first row of the tile.
  const auto element = [&](const BwdTensor& t) {
    return b * t.batch + (i64{first_row(args.q_axis, rows)} + first) * t.row + head * t.head;
  };
  smem.dout.copy(args.dout, element(args.dout), rows.used - first, args.head_dim_v);
  if (!args.o.f32) smem.o.copy(args.o, element(args.o), rows.used - first, args.head_dim_v);
  const auto clear = [&](u32* words, i32 count) {
    using Four = ptx::Vec<u32, 4>;
    FA3_NO_UNROLL
    for (i32 i = thread; i < count / 4; i += kBwdRowThreads)
      ptx::st_global(reinterpret_cast<Four*>(words) + i, Four{});
  };
  const i32 heads_kv = static_cast<i32>(ptx::grid_dim_y()) / args.group_size;
  const i32 head_kv = b * heads_kv + head / args.group_size;
  const bool clears = !kCfg.sets_zeros || args.zeros.ahead == 0 || head_kv < args.zeros.ahead;
  if (args.dq_sum != nullptr && clears) clear(args.dq_sum + at * kCfg.dq_sums(), kCfg.dq_sums());
  if constexpr (kCfg.sets_zeros) {
    if (thread == 0 && args.zeros.ahead > 0) {
      ptx::st_global(args.zeros.taken + at, 0u);
      if (tile == 0 && head % args.group_size == 0) ptx::st_global(args.zeros.set + head_kv, 0u);
    }
  }
  clear(args.dq_flag + at * kCfg.dq_flags(), kCfg.dq_flags());
  // Loaded by a row's lane 0, which stores the row; −∞ where it does not count.
  float given[kTurns], of_lse[kTurns];
  FA3_UNROLL
  for (i32 turn = 0; turn < kTurns; ++turn) {
    const i32 row = first + Share::row(turn);
    const i64 i = i64{first_row(args.q_axis, rows)} + row;
    const bool counts = Share::lane() == 0 && row < rows.used;
    given[turn] = counts ? ptx::ld_global(args.lse + b * args.lse_batch + head * args.lse_head +
                                          i * args.lse_row)
                         : -kInf;
    of_lse[turn] = counts && args.dlse != nullptr
                       ? ptx::ld_global(args.dlse + b * args.dlse_batch + head * args.dlse_head +
                                        i * args.dlse_row)
                       : 0.f;
  }
  [[maybe_unused]] KeyBound keys;
  if constexpr (kCfg.deterministic) {
    const i64 of_head = i64{head_kv} * args.bound_entries;
    keys = load_bound(args.bounds + of_head, args.bound_entries);
  }
  Share::wait();
  float sums[kTurns] = {};
  [[maybe_unused]] RowSize sizes[kTurns];
  FA3_UNROLL
  for (i32 turn = 0; turn < kTurns; ++turn) {
    FA3_UNROLL
    for (i32 part = 0; part < Share::kParts; ++part) {
      const i32 r = Share::row(turn), c = Share::column(part);
      float o[8] = {}, dout[8];
      smem.dout.template read<kCfg.dtype>(turn, part, dout);
      if (!args.o.f32)
        smem.o.template read<kCfg.dtype>(turn, part, o);
      else if (first + r < rows.used && c < args.head_dim_v)
        load_eight_f32(args.o, element(args.o) + r * args.o.row + c, o);
      FA3_UNROLL
      for (int k = 0; k < 8; ++k) sums[turn] = ptx::fma(o[k], dout[k], sums[turn]);
      if constexpr (kCfg.deterministic) sizes[turn].take(dout);
    }
  }
  float* const stats = args.stats + at * kCfg.stats_and_scales();
  FA3_UNROLL
  for (i32 turn = 0; turn < kTurns; ++turn) {
    const i32 r = Share::row(turn), row = first + r;
    const i64 i = i64{first_row(args.q_axis, rows)} + row;
    float sum = sums[turn];
    [[maybe_unused]] RowSize size = sizes[turn];
    FA3_UNROLL
    for (u32 m = 1; m < kLanes; m *= 2) sum += ptx::shfl_xor(sum, m);
    if constexpr (kCfg.deterministic) size.over_lanes<kLanes>();
    if (Share::lane() != 0) continue;
    const float lse = given[turn] == -kInf ? kInf : given[turn] * kUnit;
    sum -= of_lse[turn];
    float* const to = stats + stats_place(r);
    ptx::st_global(to, lse);
    ptx::st_global(to + kCfg.tile_q, lse == kInf ? 0.f : sum);
    if constexpr (kCfg.deterministic) {
      // A row that does not count gets a normal scale: its P is 0, but 0 · NaN from its dO or δ
      // would not be.
      const float scale = scale_of_row<kCfg.dtype>(keys, norm_of(size.squares, size.most), sum,
                                                   lse == kInf ? 0.f : lse);
      ptx::st_global(to + kCfg.stats() * kCfg.tile_q, scale);
    }
    if constexpr (kCfg.functors) {
      const ElementArgs& e = args.elements;
      const bool ids = e.ids_q != nullptr && row < rows.used;
      const i32 id = ids ? ptx::ld_global_nc(e.ids_q + b * e.id_q_batch + i) : 0;
      const float slope = e.alibi_slopes != nullptr
                              ? ptx::ld_global_nc(e.alibi_slopes + b * e.slope_batch + head)
                              : 0.f;
      ptx::st_global(to + 2 * kCfg.tile_q, ptx::bits_as<float>(id));
      if (r == 0) ptx::st_global(to + 3 * kCfg.tile_q, -slope * kUnit);
    }
  }
  if constexpr (kCfg.functors) {
    const ElementArgs& e = args.elements;
    if (e.ids_q == nullptr || thread >= 32 || first >= rows.used) return;
    const IdRange ids = IdRange::of<kCfg.tile_q>(
        e.ids_q + b * e.id_q_batch + first_row(args.q_axis, rows) + first, rows.used - first);
    if (thread == 0)
      ptx::st_global(reinterpret_cast<ptx::Vec<i32, 2>*>(stats + kCfg.id_range_at()),
                     {{ids.least, ids.greatest}});
  }
}

}  // namespace fa3::sm90
