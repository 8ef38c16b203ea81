// SPDX-License-Identifier: BSD-3-Clause
// consumer_ahead.h — a consumer whose S and dP run one tile ahead. GEMMs of step i are issued in
// the order dV(i), dQ(i−1), S(i+1), dP(i+1), dK(i): exponentials run under dP and dK, dS under dK,
// and dQ is added to global memory under S. No barrier of all consumers: dS(i) has until the next
// step to reach the others.
#pragma once

#include "device/sm90/bwd/consumer.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct BwdConsumerAhead {
  static constexpr MmaType kType = kCfg.dtype;
  static constexpr int kQueries = kCfg.tile_q;
  // P as FP32 until dS is made where registers allow it, else from P as it was rounded for dV.
  static constexpr bool kExactP = kQueries == 64;
  static constexpr TileLayout kK = kCfg.k_tile(), kV = kCfg.v_tile(), kQ = kCfg.q_tile(),
                              kDout = kCfg.dout_tile(), kDs = kCfg.ds_tile();
  static constexpr bool kByRows = kCfg.dq_by_rows();
  using Smem = BwdSmem<kCfg>;
  using Scores = ptx::Acc<kQueries>;
  using Fragment = ptx::AFrag[kQueries / 16];
  using DqAcc = ptx::Acc<kCfg.dq_columns()>;
  using QRing = Ring<kCfg.q_stages()>;
  using DoutRing = Ring<kCfg.stages>;
  using DsRing = Ring<BwdConfig::kDsSlots>;

  Smem& smem;
  const BwdArgs& args;
  u32 base;  // shared memory's first byte
  u32 wg;    // among the consumers
  u32 thread;
  QRing q_ring;        // dK's
  DoutRing dout_ring;  // dV's
  DsRing ds_ring;
  TileRange range;
  i32 tile;   // S's
  i32 place;  // of dQ's tiles, from the group's first head on
  ptx::Acc<kCfg.head_dim_qk> dk;
  ptx::Acc<kCfg.head_dim_v> dv;

  FA3_DEV BwdConsumerAhead(Smem& smem, const BwdArgs& args, u32 wg)
      : smem(smem),
        args(args),
        base(ptx::smem_address(&smem)),
        wg(wg),
        thread(ptx::thread_index() % kWgThreads) {}

  FA3_DEV void run() {
    dk.zero();
    dv.zero();
    const BwdWork work = BwdWork::of_cta<kCfg>(args);
    if (!work.range.empty()) {
      if (thread % 4 == 0) {
        FA3_UNROLL
        for (u32 h = 0; h < 2; ++h) {
          const u32 row = own_row() + 8 * h;
          const Range<i32> seen = rows_of_key(args.band, work.q.used, work.kv.used,
                                              work.key + static_cast<i32>(row));
          ptx::st_shared(&smem.seen[row], {{seen.lo, seen.hi}});
        }
      }
      ptx::warp_sync();
      range = of_warp(work.range);
      attend(args.tiles.first(work.batch, work.head_kv * args.group_size, work.q.begin, kQueries));
    }
    store();
  }
  FA3_DEV u32 own_row() const { return kWgRows * wg + fragment_row(thread); }  // and the one 8 below
  FA3_DEV u32 column() const { return fragment_column(thread); }

  // Through reductions, so that the compiler sees one value per warp.
  FA3_DEV static TileRange of_warp(const TileRange& range) {
    const auto one = [](i32 x) { return static_cast<i32>(ptx::redux_or(static_cast<u32>(x))); };
    return {one(range.first), one(range.unmasked_first), one(range.unmasked_end), one(range.end)};
  }

  // The Q tiles of all the group's heads, one sequence of steps.
  FA3_DEV void attend(i64 first) {
    float* const sums = args.dq_sum + first * kCfg.dq_floats() +
                        wg * (kWgRows * kCfg.dq_columns()) + 4 * thread;
    tile = place = range.first;
    i32 left = (range.end - range.first) * args.group_size;
    Fragment p;
    Scores ds;
    begin(p, ds);
    if (left == 1) {
      step<false, false>(sums, p, ds);
    } else {
      step<false, true>(sums, p, ds);
      FA3_NO_UNROLL
      for (; left > 2; --left) step<true, true>(sums, p, ds);
      step<true, false>(sums, p, ds);
    }
    finish(sums);
  }

  // P and dS of the first tile.
  FA3_DEV void begin(Fragment& p, Scores& ds) {
    smem.kv_full.wait(0);
    Scores s;
    smem.q_full[0].wait(0);
    constexpr NamedBarrier kStart{kStartBar, kWgThreads * kCfg.consumer_wgs};
    if (kCfg.staggered && wg == 1) kStart.sync();
    issue_s(q_ring, s);
    smem.dout_full[0].wait(0);
    issue_dp(dout_ring, ds);
    gemm_wait<1>(s);
    make_p(q_ring, s, p);
    if (kCfg.staggered && wg == 0) kStart.arrive();
    gemm_wait<0>(ds);
    make_ds(q_ring, s, p, ds);
  }

  // kBefore: dQ of the tile before is due; kNext: there is a tile behind this one.
  template <bool kBefore, bool kNext>
  FA3_DEV void step(float* sums, Fragment& p, Scores& ds) {
    const bool leader = thread == 0;
    // Every step anew, so that the compiler keeps no descriptors of K and V over the loop: they are
    // more than the registers that are left.
    base = ptx::shfl_idx(base, 0);
    if constexpr (kBefore) {
      gemm_wait<0>(dk);
      smem.q_empty[q_ring.before().stage].arrive_if(leader);
    }
    smem.ds_empty[ds_ring.stage].wait(ds_ring.phase ^ 1);
    store_ds(ds);
    gemm_rs<kType>(dv, p, columns<kDout>(smem.dout, dout_ring), kAccumulate);
    DqAcc dq;
    if constexpr (kBefore) {
      issue_dq(ds_ring.before(), dq);
      gemm_wait<1>(dv);
    } else {
      gemm_wait<0>(dv);
    }
    smem.dout_empty[dout_ring.stage].arrive_if(leader);
    dout_ring.advance();
    Scores s;
    const QRing q_next = q_ring.next();
    if constexpr (kNext) {
      smem.q_full[q_next.stage].wait(q_next.phase);
      issue_s(q_next, s);
    }
    if constexpr (kBefore) {
      gemm_wait<kNext ? 1 : 0>(dq);
      smem.ds_empty[ds_ring.before().stage].arrive_if(leader);
      add_dq(sums, dq);
      advance_place();
    }
    if constexpr (kNext) {
      smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
      issue_dp(dout_ring, ds);
    }
    smem.ds_full[ds_ring.stage][wg].wait(ds_ring.phase);
    gemm_ss<kType, kQueries / 16>(dk, rows<kDs>(smem.ds, ds_ring, own_bytes<kDs>()),
                                  columns<kQ>(smem.q, q_ring), kAccumulate);
    if constexpr (kNext) {
      if (++tile == range.end) tile = range.first;
      gemm_wait<2>(s);
      make_p(q_next, s, p);
      gemm_wait<1>(ds);
      make_ds(q_next, s, p, ds);
      q_ring.advance();
      ds_ring.advance();
    }
  }

  FA3_DEV void finish(float* sums) {
    DqAcc dq;
    issue_dq(ds_ring, dq);
    gemm_wait<1>(dk);
    gemm_wait<0>(dq);
    add_dq(sums, dq);
  }

  // From dQ's tile to the next one: `tile`, or the last of the head before.
  FA3_DEV void advance_place() {
    place += tile == range.first
                 ? static_cast<i32>(args.tiles.head) - (range.end - range.first) + 1
                 : 1;
  }

  // ---- Operands ---------------------------------------------------------------------------------

  // Of a tile in shared memory; `skip`: bytes from its first row on.
  template <TileLayout kTile, class Member, class Cursor>
  FA3_DEV KMajorOperand<kTile> rows(const Member& member, const Cursor& ring, u32 skip = 0) const {
    return KMajorOperand<kTile>::at(at(member) + skip +
                                    ring.stage * static_cast<u32>(kTile.bytes()));
  }
  template <TileLayout kTile, class Member, class Cursor>
  FA3_DEV MnMajorOperand<kTile> columns(const Member& member, const Cursor& ring,
                                        u32 skip = 0) const {
    return MnMajorOperand<kTile>::at(at(member) + skip +
                                     ring.stage * static_cast<u32>(kTile.bytes()));
  }
  template <class Member>
  FA3_DEV u32 at(const Member& member) const {
    return base + static_cast<u32>(reinterpret_cast<const u8*>(&member) -
                                   reinterpret_cast<const u8*>(&smem));
  }
  // To the rows of this consumer's keys.
  template <TileLayout kTile>
  FA3_DEV u32 own_bytes() const {
    return kWgRows * wg * static_cast<u32>(kTile.panel_width());
  }

  FA3_DEV void issue_s(const QRing& ring, Scores& s) const {
    gemm_ss<kType, kCfg.head_dim_qk / 16>(s, rows<kK>(smem.k, Ring<1>{}, own_bytes<kK>()),
                                          rows<kQ>(smem.q, ring), kOverwrite);
  }
  FA3_DEV void issue_dp(const DoutRing& ring, Scores& dp) const {
    gemm_ss<kType, kCfg.head_dim_v / 16>(dp, rows<kV>(smem.v, Ring<1>{}, own_bytes<kV>()),
                                         rows<kDout>(smem.dout, ring), kOverwrite);
  }
  FA3_DEV void issue_dq(const DsRing& ring, DqAcc& dq) {
    FA3_UNROLL
    for (int w = 0; w < kCfg.consumer_wgs; ++w) smem.ds_full[ring.stage][w].wait(ring.phase);
    constexpr u32 kPanels = static_cast<u32>(kCfg.dq_columns() / kK.panel_columns());
    const u32 own_queries = kByRows ? wg * static_cast<u32>(kDs.panel_bytes()) : 0;
    const u32 own_columns = kByRows ? 0 : wg * kPanels * static_cast<u32>(kK.panel_bytes());
    gemm_ss<kType, kCfg.tile_kv() / 16>(dq, columns<kDs>(smem.ds, ring, own_queries),
                                        columns<kK>(smem.k, Ring<1>{}, own_columns), kOverwrite);
  }

  // ---- Between the GEMMs ------------------------------------------------------------------------

  FA3_DEV void store_ds(const Scores& ds) {
    u8* const own = smem.ds[ds_ring.stage] + own_bytes<kDs>();
    store_operand16<kType, kDs.swizzle()>(own, ds, kCfg.tile_kv());
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    smem.ds_full[ds_ring.stage][wg].arrive_if(ptx::lane_index() == 0);
  }

  // Registers 4g … 4g + 3 of all threads lie side by side.
  FA3_DEV void add_dq(float* sums, const DqAcc& dq) const {
    if constexpr (!kCfg.adds) return;
    float* const to = sums + i64{place} * kCfg.dq_floats();
    FA3_UNROLL
    for (int g = 0; g < kCfg.dq_columns() / 8; ++g) {
      ptx::red_add_v4_f32(to + 4 * kWgThreads * g,
                          {{dq[4 * g], dq[4 * g + 1], dq[4 * g + 2], dq[4 * g + 3]}});
    }
  }

  FA3_DEV bool masked() const { return tile < range.unmasked_first || tile >= range.unmasked_end; }

  FA3_DEV ptx::Vec<float, 2> stats_at(u32 stage, int which, int row) const {
    return ptx::ld_shared(reinterpret_cast<const ptx::Vec<float, 2>*>(
        &smem.stats[stage][which][row + static_cast<int>(column())]));
  }

  FA3_DEV void make_p(const QRing& ring, Scores& s, Fragment& p) const {
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) {
      const auto lse = stats_at(ring.stage, 0, 8 * j);
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& x = s[4 * j + i];
        x = ptx::ex2(ptx::fma(x, args.scale_log2, -lse[i % 2]));
      }
    }
    if (masked()) {
      const ptx::Vec<i32, 2> both[2] = {ptx::ld_shared(&smem.seen[own_row()]),
                                        ptx::ld_shared(&smem.seen[own_row() + 8])};
      FA3_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        FA3_UNROLL
        for (int i = 0; i < 4; ++i) {
          const i32 query = kQueries * tile + 8 * j + i % 2 + static_cast<i32>(column());
          const ptx::Vec<i32, 2>& seen = both[i / 2];
          if (query < seen[0] || query >= seen[1]) s[4 * j + i] = 0;
        }
      }
    }
    to_operand16<kType>(p, s);
    // Before the wait for dP, which the compiler would otherwise let them follow: a vote on the
    // results, which no sign decides (P ≥ 0).
    u32 all = 0;
    FA3_UNROLL
    for (int k = 0; k < kQueries / 16; ++k) {
      FA3_UNROLL
      for (int r = 0; r < 4; ++r) all |= p[k][r];
    }
    if (ptx::any(static_cast<i32>(all) < 0)) ptx::nanosleep(0);
  }

  // dS = P ∘ (dP − δ). Where the mask has hidden a pair, dP may be anything.
  FA3_DEV void make_ds(const QRing& ring, const Scores& s, const Fragment& p,
                       Scores& dp) const {
    if (masked()) {
      FA3_UNROLL
      for (int i = 0; i < kQueries / 2; ++i)
        if (p_at(s, p, i) == 0) dp[i] = 0;
    }
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) {
      const auto delta = stats_at(ring.stage, 1, 8 * j);
      FA3_UNROLL
      for (int i = 4 * j; i < 4 * j + 4; ++i) dp[i] = p_at(s, p, i) * (dp[i] - delta[i % 2]);
    }
  }
  FA3_DEV static float p_at(const Scores& s, const Fragment& p, int i) {
    if constexpr (kExactP) return s[i];
    return unpack16<kType>(p[i / 8][i % 8 / 2], i % 2);
  }

  // ---- Results ----------------------------------------------------------------------------------

  FA3_DEV void store() {
    // Read again: kept over the loop, it would take registers.
    BwdWork work = BwdWork::of_cta<kCfg>(args);
    FA3_UNROLL
    for (int i = 0; i < kCfg.head_dim_qk / 2; ++i) dk[i] *= args.scale;
    // Rows of no sequence may be more than the grid has tiles.
    const i32 step = kCfg.tile_kv() * static_cast<i32>(ptx::grid_dim_x());
    FA3_NO_UNROLL
    do {
      store_rows(args.dk, work, dk, args.head_dim_qk);
      store_rows(args.dv, work, dv, args.head_dim_v);
      work.key += step;
    } while (work.batch == args.batch && work.key < work.kv.rows);
  }
  // Two neighbours at a time.
  template <int N>
  FA3_DEV void store_rows(const BwdTensor& to, const BwdWork& work, const ptx::Acc<N>& acc,
                          i32 columns) const {
    if (to.data == nullptr) return;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      const i32 i = work.key + static_cast<i32>(own_row()) + 8 * h;
      if (i >= work.kv.rows) continue;
      const i64 at = work.batch * to.batch + (i64{first_row(args.kv_axis, work.kv)} + i) * to.row +
                     work.head_kv * to.head + column();
      FA3_UNROLL
      for (int c = 0; c < N; c += 8) {
        if (c >= columns) break;
        store_two<kType>(to, at + c, acc[c / 2 + 2 * h], acc[c / 2 + 2 * h + 1]);
      }
    }
  }
};

}  // namespace fa3::sm90
