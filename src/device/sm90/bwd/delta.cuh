// SPDX-License-Identifier: BSD-3-Clause
// delta.cuh — before the backward's main kernel: δ = Σ O·dO − dLSE and LSE of every row, in the
// order of Q tiles; sums of dQ set to 0, or those of the first heads, and what counts the others.
// CONTRACT  rows that do not count, and those that see no key (LSE = −∞), get LSE = +∞, so P = 0.
//           Beside an added mask, whose image is there: rows with a coarse LSE get LSE = 0 and two
//           words instead (coarse_rows.h).
//           cu_seqlens and seqused may hold anything.
// GRID      x: Q tiles of the longest sequence · y: query heads · z: sequences
#pragma once

#include "device/attn/conventions.h"
#include "device/hopper/column_term.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/bound.cuh"
#include "device/sm90/bwd/coarse_rows.h"
#include "device/sm90/bwd/finder.h"
#include "device/sm90/bwd/row_share.h"
#include "device/sm90/bwd/tensor.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

template <BwdConfig kCfg, bool kCoarse = kCfg.adds_mask()>
struct DeltaSmem {
  RowShare<kCfg.tile_q, kCfg.head_dim_v> o, dout;  // o: of 16 bits
  FA3_NAMED(o, dout)
};
template <BwdConfig kCfg>
struct DeltaSmem<kCfg, true> {
  using Share = RowShare<kCfg.tile_q, kCfg.head_dim_v>;
  static constexpr int kTile = kCfg.coarse_tile().bytes();
  alignas(1024) Share o;
  Share dout;
  u8 rest[max(16, 2 * kTile - 2 * static_cast<int>(sizeof(Share)))];  // of tiles of Q and K
  float lse[kCfg.tile_q];
  FA3_NAMED(o, dout, rest, lse)

  FA3_DEV CoarseSmem coarse() {
    u8* const tiles = reinterpret_cast<u8*>(this);
    return {tiles, tiles + kTile, lse};
  }
};

// A tile of Q: what a CTA does with it.
template <BwdConfig kCfg>
struct DeltaTile {
  using Share = RowShare<kCfg.tile_q, kCfg.head_dim_v>;
  static constexpr i32 kTurns = Share::kTurns, kLanes = Share::kLanes;
  static constexpr float kUnit = kCfg.adds_mask() ? 1.f : kLog2e;  // of LSE and slopes

  DeltaSmem<kCfg>& smem;
  const BwdDeltaArgs& args;
  const BwdQTile& work;
  i64 at;       // the tile, among those of all heads and sequences
  i32 first;    // its first row
  i32 head_kv;  // among those of all sequences

  // Of its rows, one in each turn.
  struct Rows {
    float lse[kTurns], dlse[kTurns];  // of a row's lane 0; LSE −∞ where the row does not count
    float sums[kTurns] = {};          // this lane's share of Σ O·dO
    RowSize sizes[kTurns];            // deterministic: of dO
  };

  FA3_DEV i32 rows_left() const { return work.rows.used - first; }
  FA3_DEV i64 sequence_row(i32 row) const { return i64{first_row(args.q_axis, work.rows)} + row; }
  // Of a tensor's first row of the tile.
  FA3_DEV i64 element(const BwdTensor& t) const {
    return work.batch * t.batch + sequence_row(first) * t.row + work.head * t.head;
  }

  FA3_DEV void copy_o_and_dout() const {
    smem.dout.copy(args.dout, element(args.dout), rows_left(), args.head_dim_v);
    if (!args.o.f32) smem.o.copy(args.o, element(args.o), rows_left(), args.head_dim_v);
  }

  // dQ's flags and sums to 0, or the counts by which the main kernel does it (dq_zeros.h).
  FA3_DEV void clear_dq() const {
    const bool clears = !kCfg.sets_zeros || args.zeros.ahead == 0 || head_kv < args.zeros.ahead;
    if (args.dq_sum != nullptr && clears) clear(args.dq_sum + at * kCfg.dq_sums(), kCfg.dq_sums());
    if constexpr (kCfg.sets_zeros) {
      if (Share::thread() == 0 && args.zeros.ahead > 0) {
        ptx::st_global(args.zeros.taken + at, 0u);
        if (work.tile == 0 && work.head % args.group_size == 0)
          ptx::st_global(args.zeros.set + head_kv, 0u);
      }
    }
    clear(args.dq_flag + at * kCfg.dq_flags(), kCfg.dq_flags());
  }
  FA3_DEV static void clear(u32* words, i32 count) {
    using Four = ptx::Vec<u32, 4>;
    FA3_NO_UNROLL
    for (i32 i = Share::thread(); i < count / 4; i += kBwdRowThreads)
      ptx::st_global(reinterpret_cast<Four*>(words) + i, Four{});
  }

  FA3_DEV void load_lse(Rows& to) const {
    FA3_UNROLL
    for (i32 turn = 0; turn < kTurns; ++turn) {
      const i32 row = first + Share::row(turn);
      const i64 i = sequence_row(row);
      const bool counts = Share::lane() == 0 && row < work.rows.used;
      to.lse[turn] = counts ? ptx::ld_global(args.lse + work.batch * args.lse_batch +
                                             work.head * args.lse_head + i * args.lse_row)
                            : -kInf;
      to.dlse[turn] = counts && args.dlse != nullptr
                          ? ptx::ld_global(args.dlse + work.batch * args.dlse_batch +
                                           work.head * args.dlse_head + i * args.dlse_row)
                          : 0.f;
    }
  }

  // Of what has been copied.
  FA3_DEV void sum(Rows& to) const {
    FA3_UNROLL
    for (i32 turn = 0; turn < kTurns; ++turn) {
      FA3_UNROLL
      for (i32 part = 0; part < Share::kParts; ++part) {
        const i32 r = Share::row(turn), c = Share::column(part);
        float o[8] = {}, dout[8];
        smem.dout.template read<kCfg.dtype>(turn, part, dout);
        if (!args.o.f32)
          smem.o.template read<kCfg.dtype>(turn, part, o);
        else if (first + r < work.rows.used && c < args.head_dim_v)
          load_eight_f32(args.o, element(args.o) + r * args.o.row + c, o);
        FA3_UNROLL
        for (int k = 0; k < 8; ++k) to.sums[turn] = ptx::fma(o[k], dout[k], to.sums[turn]);
        if constexpr (kCfg.deterministic) to.sizes[turn].take(dout);
      }
    }
  }

  FA3_DEV float* stats() const { return args.stats + at * kCfg.row_floats(); }
  FA3_DEV void store(const Rows& rows, const KeyBound& keys) const {
    [[maybe_unused]] const float sink = kCfg.deterministic ? args.sinks.of_head(work.head) : -kInf;
    FA3_UNROLL
    for (i32 turn = 0; turn < kTurns; ++turn) {
      float sum = rows.sums[turn];
      [[maybe_unused]] RowSize size = rows.sizes[turn];
      FA3_UNROLL
      for (u32 m = 1; m < kLanes; m *= 2) sum += ptx::shfl_xor(sum, m);
      if constexpr (kCfg.deterministic) size.template over_lanes<kLanes>();
      if (Share::lane() != 0) continue;
      const i32 r = Share::row(turn);
      float lse = rows.lse[turn] == -kInf ? kInf : rows.lse[turn];
      if constexpr (kCfg.adds_mask()) {
        const bool coarse = is_coarse(lse);
        ptx::st_shared(smem.lse + r, coarse ? lse : 0.f);
        if (coarse) lse = 0;
      }
      sum -= rows.dlse[turn];
      float* const to = stats() + stats_place(r);
      if constexpr (kCfg.softcap)
        ptx::st_global(to, lse * kUnit);
      else
        store_term(stats(), r, lse * args.minus_unscale);
      store_term(stats() + kCfg.delta_at(), r, lse == kInf ? 0.f : -sum);
      if constexpr (kCfg.deterministic) {
        // A row that does not count gets a normal scale: its P is 0, but 0 · NaN from its dO or δ
        // would not be.
        const bool sinks = sink != -kInf && lse != kInf;
        const float scale = scale_of_row<kCfg.dtype>(
            keys, norm_of(size.squares, size.most), sum, lse == kInf ? 0.f : lse * kUnit,
            sinks ? share_of_keys(rows.lse[turn], sink) : 1.f);
        ptx::st_global(to + kCfg.scales_at(), scale);
      }
      if constexpr (kCfg.functors) store_terms(to, r);
    }
    if constexpr (kCfg.functors) store_id_range();
  }
  FA3_DEV static void store_term(float* terms, i32 row, float term) {
    ptx::st_global(reinterpret_cast<ColumnTermVec*>(terms) + row, column_term(term));
  }
  // The row's id, and with the tile's first the head's slope.
  FA3_DEV void store_terms(float* to, i32 r) const {
    const ElementArgs& e = args.elements;
    const bool ids = e.ids_q != nullptr && first + r < work.rows.used;
    const i32 id =
        ids ? ptx::ld_global_nc(e.ids_q + work.batch * e.id_q_batch + sequence_row(first + r)) : 0;
    const float slope =
        e.alibi_slopes != nullptr
            ? ptx::ld_global_nc(e.alibi_slopes + work.batch * e.slope_batch + work.head)
            : 0.f;
    ptx::st_global(to + kCfg.ids_at(), ptx::bits_as<float>(id));
    if (r == 0) ptx::st_global(to + kCfg.slope_at(), -slope * kUnit);
  }
  FA3_DEV void store_id_range() const {
    const ElementArgs& e = args.elements;
    const i32 thread = Share::thread();
    if (e.ids_q == nullptr || thread >= 32 || rows_left() <= 0) return;
    const IdRange ids = IdRange::of<kCfg.tile_q>(
        e.ids_q + work.batch * e.id_q_batch + sequence_row(first), rows_left());
    if (thread == 0)
      ptx::st_global(reinterpret_cast<ptx::Vec<i32, 2>*>(stats() + kCfg.id_range_at()),
                     {{ids.least, ids.greatest}});
  }
};

template <BwdConfig kCfg>
FA3_KERNEL(kBwdRowThreads)
void bwd_delta(FA3_GRID_CONSTANT const typename BwdDeltaArgsOf<kCfg.adds_mask()>::Type args) {
  auto& smem = ptx::smem_as<DeltaSmem<kCfg>>();
  static_assert(sizeof smem == kCfg.delta_smem_bytes(), "the launch has another size");
  ptx::pdl_launch();
  ptx::pdl_wait();
  const BwdQTile work = BwdQTile::of_cta<kCfg>(args.q_axis, args.batch);
  if (work.tile > 0 && work.tile * kCfg.tile_q >= work.rows.rows) return;
  const i32 heads_kv = static_cast<i32>(ptx::grid_dim_y()) / args.group_size;
  const DeltaTile<kCfg> tile{
      smem,
      args,
      work,
      args.tiles.first(work.batch, work.head, work.rows.begin, kCfg.tile_q) + work.tile,
      kCfg.tile_q * work.tile,
      work.batch * heads_kv + work.head / args.group_size};
  typename DeltaTile<kCfg>::Rows rows;
  tile.copy_o_and_dout();
  tile.clear_dq();
  tile.load_lse(rows);
  KeyBound keys;
  if constexpr (kCfg.deterministic)
    keys = load_bound(args.bounds + i64{tile.head_kv} * args.bound_entries, args.bound_entries);
  DeltaTile<kCfg>::Share::wait();
  tile.sum(rows);
  tile.store(rows, keys);
  if constexpr (kCfg.adds_mask()) CoarseRows<kCfg>{smem.coarse(), args, work, tile.at}.run();
}

}  // namespace fa3::sm90
