// SPDX-License-Identifier: BSD-3-Clause
// delta.cuh — before the backward's main kernel: δ = Σ O·dO − dLSE and LSE of every row, in the
// order of Q tiles; sums of dQ set to 0, or those of the first heads, and what counts the others.
// CONTRACT  rows that do not count, and those that see no key (LSE = −∞), get LSE = +∞, so P = 0.
//           cu_seqlens and seqused may hold anything.
// GRID      x: Q tiles of the longest sequence · y: query heads · z: sequences
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/async_copy.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/bound.cuh"
#include "device/sm90/bwd/finder.h"
#include "device/sm90/bwd/tensor.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

// What each thread has of O, of 16 bits, and dO: by asynchronous copies, since registers for all of
// a tile at once would leave room for half as many CTAs.
template <BwdConfig kCfg>
struct DeltaSmem {
  using Eight = ptx::Vec<u32, 4>;  // of 16 bits
  static constexpr int kEach = kCfg.tile_q * kCfg.head_dim_v / 8 / kBwdRowThreads;
  Eight o[kEach][kBwdRowThreads], dout[kEach][kBwdRowThreads];
  FA3_NAMED(o, dout)
};

template <BwdConfig kCfg>
FA3_KERNEL(kBwdRowThreads)
void bwd_delta(FA3_GRID_CONSTANT const BwdDeltaArgs args) {
  // Of a row, 8 columns each at a time; rows that a thread takes part in.
  constexpr i32 kLanes = min(kCfg.head_dim_v / 8, 16), kRows = kBwdRowThreads / kLanes;
  constexpr i32 kTurns = kCfg.tile_q / kRows, kColumns = kCfg.head_dim_v / 8 / kLanes;
  constexpr float kUnit = kCfg.adds_mask() ? 1.f : kLog2e;  // of LSE and slopes
  auto& smem = ptx::smem_as<DeltaSmem<kCfg>>();
  static_assert(sizeof smem == kCfg.delta_smem_bytes());
  ptx::pdl_launch();
  ptx::pdl_wait();
  const BwdQTile work = BwdQTile::of_cta<kCfg>(args.q_axis, args.batch);
  const SequenceRows& rows = work.rows;
  const i32 tile = work.tile, head = work.head, b = work.batch;
  if (tile > 0 && tile * kCfg.tile_q >= rows.rows) return;
  const i64 at = args.tiles.first(b, head, rows.begin, kCfg.tile_q) + tile;
  const i32 thread = static_cast<i32>(ptx::thread_index()), lane = thread % kLanes;
  const auto row_of = [&](i32 turn) { return kCfg.tile_q * tile + kRows * turn + thread / kLanes; };
  // Of eight columns that this thread has of a row, from c on, where in a tensor they lie.
  const auto element = [&](const BwdTensor& t, i32 turn, i32 c) {
    return b * t.batch + (i64{first_row(args.q_axis, rows)} + row_of(turn)) * t.row +
           head * t.head + c;
  };
  const auto each = [&](const auto& what) {
    FA3_UNROLL
    for (i32 turn = 0; turn < kTurns; ++turn) {
      FA3_UNROLL
      for (i32 i = 0; i < kColumns; ++i) what(turn, 8 * (lane + kLanes * i), kColumns * turn + i);
    }
  };
  const auto is_there = [&](i32 turn, i32 c) {
    return c < args.head_dim_v && row_of(turn) < rows.used;
  };
  each([&](i32 turn, i32 c, i32 i) {
    const auto copy = [&](DeltaSmem<kCfg>::Eight& to, const BwdTensor& t) {
      const bool there = is_there(turn, c);
      const u16* const from = static_cast<const u16*>(t.data) + (there ? element(t, turn, c) : 0);
      ptx::cp_async_16(ptx::smem_address(&to), from, there ? 16 : 0);
    };
    copy(smem.dout[i][thread], args.dout);
    if (!args.o.f32) copy(smem.o[i][thread], args.o);
  });
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
  // −∞ in rows that do not count; of lane 0, which stores what is made of them.
  float given[kTurns], of_lse[kTurns];
  FA3_UNROLL
  for (i32 turn = 0; turn < kTurns; ++turn) {
    const i64 i = i64{first_row(args.q_axis, rows)} + row_of(turn);
    const bool counts = lane == 0 && row_of(turn) < rows.used;
    given[turn] = counts ? ptx::ld_global(args.lse + b * args.lse_batch + head * args.lse_head +
                                          i * args.lse_row)
                         : -kInf;
    of_lse[turn] = counts && args.dlse != nullptr
                       ? ptx::ld_global(args.dlse + b * args.dlse_batch + head * args.dlse_head +
                                        i * args.dlse_row)
                       : 0.f;
  }
  ptx::cp_async_wait_all();
  float sums[kTurns] = {};
  [[maybe_unused]] RowSize sizes[kTurns];
  each([&](i32 turn, i32 c, i32 i) {
    float o[8] = {}, dout[8];
    unpack_eight<kCfg.dtype>(ptx::ld_shared(&smem.dout[i][thread]), dout);
    if (!args.o.f32)
      unpack_eight<kCfg.dtype>(ptx::ld_shared(&smem.o[i][thread]), o);
    else if (is_there(turn, c))
      load_eight<kCfg.dtype, true>(args.o, element(args.o, turn, c), o);
    FA3_UNROLL
    for (int k = 0; k < 8; ++k) sums[turn] = ptx::fma(o[k], dout[k], sums[turn]);
    if constexpr (kCfg.deterministic) sizes[turn].take(dout);
  });
  [[maybe_unused]] KeyBound keys;
  if constexpr (kCfg.deterministic) {
    const i64 of_head = i64{head_kv} * args.bound_entries;
    keys = load_bound(args.bounds + of_head, args.bound_entries);
  }
  float* const stats = args.stats + at * kCfg.stats_and_scales();
  FA3_UNROLL
  for (i32 turn = 0; turn < kTurns; ++turn) {
    const i32 r = kRows * turn + thread / kLanes, row = kCfg.tile_q * tile + r;
    const i64 i = i64{first_row(args.q_axis, rows)} + row;
    float sum = sums[turn];
    [[maybe_unused]] RowSize size = sizes[turn];
    FA3_UNROLL
    for (u32 m = 1; m < kLanes; m *= 2) sum += ptx::shfl_xor(sum, m);
    if constexpr (kCfg.deterministic) size.over_lanes<kLanes>();
    if (lane != 0) continue;
    const float lse = given[turn] == -kInf ? kInf : given[turn] * kUnit;
    sum -= of_lse[turn];
    float* const to = stats + stats_place(r);
    ptx::st_global(to, lse);
    ptx::st_global(to + kCfg.tile_q, lse == kInf ? 0.f : sum);
    if constexpr (kCfg.deterministic) {
      // A row that does not count has P = 0, which is no number beside dO or δ that is none.
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
    const i32 row = kCfg.tile_q * tile;
    if (e.ids_q == nullptr || thread >= 32 || row >= rows.used) return;
    const IdRange ids = IdRange::of<kCfg.tile_q>(
        e.ids_q + b * e.id_q_batch + first_row(args.q_axis, rows) + row, rows.used - row);
    if (thread == 0)
      ptx::st_global(reinterpret_cast<ptx::Vec<i32, 2>*>(stats + kCfg.id_range_at()),
                     {{ids.least, ids.greatest}});
  }
}

}  // namespace fa3::sm90
