// SPDX-License-Identifier: BSD-3-Clause
// consumer.h — one of the backward kernel's consumer warpgroups: 64 keys, whose dK and dV stay in
// its registers. Scores lie transposed, a key a row: Sᵀ = K·Qᵀ, dPᵀ = V·dOᵀ, so that P is already
// the A operand of dV += Pᵀ·dO. dS goes through shared memory, since dQ = dS·K takes the keys of
// all consumers; each makes a part of dQ, which is added in FP32 to sums in global memory.
//
// S and dP run one tile ahead. GEMMs of step i are issued in the order dV(i), dQ(i−1), S(i+1),
// dP(i+1), dK(i): exponentials run under dP and dK, dS under dK, dQ's way out under S. dS(i) has
// until the next step to reach the others, so there is no barrier of all consumers.
#pragma once

#include "device/hopper/fragment.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/fence.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/reduce.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/tensor.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct BwdConsumer {
  static constexpr MmaType kType = kCfg.dtype;
  static constexpr int kQueries = kCfg.tile_q;
  static constexpr bool kExactP = kCfg.exact_p();
  // Whether the first step, which has no dQ to make, is code of its own: ptxas spills with it at
  // d 128, and without it at d 64. Else it makes one of its own dS, which goes nowhere.
  static constexpr bool kFirstApart = !kExactP;
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
  DsRing ds_ring;      // of the dS that is stored next, and that whose dQ is due
  DsRing due_ring;
  bool begun = false;
  u32 dq_phase = 0;
  TileRange range;
  i32 tile;   // S's
  i32 place;  // of dQ's tiles, from the group's first head on
  ptx::Acc<kCfg.head_dim_qk> dk;
  ptx::Acc<kCfg.head_dim_v> dv;

  FA3_DEV BwdConsumer(Smem& smem, const BwdArgs& args, u32 wg)
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
      ptx::Vec<i32, 4> seen;
      FA3_UNROLL
      for (u32 h = 0; h < 2; ++h) {
        const i32 key = work.key + static_cast<i32>(own_row() + 8 * h);
        const Range<i32> of_key = rows_of_key(args.band, work.q.used, work.kv.used, key);
        seen[2 * h] = of_key.lo, seen[2 * h + 1] = of_key.hi;
      }
      ptx::st_shared(&smem.seen[wg][thread], seen);
      range = of_warp(work.range);
      attend(args.tiles.first(work.batch, work.head_kv * args.group_size, work.q.begin, kQueries));
    }
    store();
  }
  FA3_DEV u32 own_row() const {
    return kWgRows * wg + fragment_row(thread);
  }  // and the one 8 below
  FA3_DEV u32 column() const { return fragment_column(thread); }

  // Through reductions, so that the compiler sees one value per warp.
  FA3_DEV static TileRange of_warp(const TileRange& range) {
    const auto one = [](i32 x) { return static_cast<i32>(ptx::redux_or(static_cast<u32>(x))); };
    return {one(range.first), one(range.unmasked_first), one(range.unmasked_end), one(range.end)};
  }

  // The Q tiles of all the group's heads, one sequence of steps.
  FA3_DEV void attend(i64 first) {
    float* const sums =
        args.dq_sum + first * kCfg.dq_floats() + wg * (kWgRows * kCfg.dq_columns()) + 4 * thread;
    tile = place = range.first;
    i32 left = (range.end - range.first) * args.group_size;
    Fragment p;
    Scores ds;
    begin(p, ds);
    if (kFirstApart && left == 1) {
      step<true, false>(sums, p, ds);
    } else {
      if constexpr (kFirstApart) step<true, true>(sums, p, ds), --left;
      FA3_NO_UNROLL
      for (; left > 1; --left) step<false, true>(sums, p, ds);
      step<false, false>(sums, p, ds);
    }
    finish(sums);
  }

  // P and dS of the first tile.
  FA3_DEV void begin(Fragment& p, Scores& ds) {
    smem.kv_full.wait(0);
    Scores s;
    smem.q_full[0].wait(0);
    // Half a step later than the first consumer: together they would leave the tensor cores idle
    // while both make P.
    constexpr NamedBarrier kStart{kStartBar, kWgThreads * kCfg.consumer_wgs};
    if (wg == 1) kStart.sync();  // sim:spare(late)
    issue_s(q_ring, s);
    smem.dout_full[0].wait(0);
    issue_dp(dout_ring, ds);
    gemm_wait<1>(s);
    make_p(q_ring, s, p);
    if (wg == 0) kStart.arrive();
    gemm_wait<0>(ds);
    make_ds(q_ring, s, p, ds);
  }

  // kFirst: no tile is before this one, so no dQ is due; kNext: there is one behind it.
  template <bool kFirst, bool kNext>
  FA3_DEV void step(float* sums, Fragment& p, Scores& ds) {
    const bool leader = thread == 0;
    // Every step anew, so that the compiler keeps no descriptors of K and V over the loop: they are
    // more than the registers that are left.
    base = ptx::shfl_idx(base, 0);
    if constexpr (!kFirst) {
      gemm_wait<0>(dk);
      smem.q_empty[q_ring.before().stage].arrive_if(leader && (kFirstApart || begun));
    }
    smem.ds_empty[ds_ring.stage].wait(ds_ring.phase ^ 1);
    store_ds(ds);
    gemm_rs<kType>(dv, p, columns<kDout>(smem.dout, dout_ring), kAccumulate);
    DqAcc dq;
    if constexpr (!kFirst) issue_dq(due_ring, dq);
    gemm_wait<kFirst ? 0 : 1>(dv);
    smem.dout_empty[dout_ring.stage].arrive_if(leader);
    dout_ring.advance();
    Scores s;
    const QRing q_next = q_ring.next();
    if constexpr (kNext) {
      smem.q_full[q_next.stage].wait(q_next.phase);
      issue_s(q_next, s);
    }
    if constexpr (!kFirst) {
      gemm_wait<kNext ? 1 : 0>(dq);
      if (kFirstApart || begun) {
        smem.ds_empty[due_ring.stage].arrive_if(leader);
        add_dq(sums, dq);
        advance_place();
      }
    }
    begun = true;
    due_ring = ds_ring;
    ds_ring.advance();
    if constexpr (kNext) {
      smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
      issue_dp(dout_ring, ds);
    }
    smem.ds_full[due_ring.stage][wg].wait(due_ring.phase);  // sim:spare(own_ds)
    gemm_ss<kType, kQueries / 16>(                          // sim:spare(fenced)
        dk, rows<kDs>(smem.ds, due_ring, own_bytes<kDs>()), columns<kQ>(smem.q, q_ring),
        kAccumulate);
    if constexpr (kNext) {
      if (++tile == range.end) tile = range.first;
      gemm_wait<2>(s);
      make_p(q_next, s, p);
      gemm_wait<1>(ds);
      make_ds(q_next, s, p, ds);
      q_ring.advance();
    }
  }

  FA3_DEV void finish(float* sums) {
    DqAcc dq;
    issue_dq(due_ring, dq);
    gemm_wait<0>(dq);
    ptx::fence_regs(dk);
    add_dq(sums, dq);
  }

  // From dQ's tile to the next one: `tile`, or the last of the head before.
  FA3_DEV void advance_place() {
    place +=
        tile == range.first ? static_cast<i32>(args.tiles.head) - (range.end - range.first) + 1 : 1;
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
    gemm_ss<kType, kCfg.head_dim_v / 16>(  // sim:spare(fenced)
        dp, rows<kV>(smem.v, Ring<1>{}, own_bytes<kV>()), rows<kDout>(smem.dout, ring), kOverwrite);
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
  FA3_DEV void add_dq(float* sums, const DqAcc& dq) {
    if constexpr (kCfg.dq_writer) return hand_over(dq);
    float* const to = sums + i64{place} * kCfg.dq_floats();
    FA3_UNROLL
    for (int g = 0; g < kCfg.dq_columns() / 8; ++g) {
      ptx::red_add_v4_f32(to + 4 * kWgThreads * g,
                          {{dq[4 * g], dq[4 * g + 1], dq[4 * g + 2], dq[4 * g + 3]}});
    }
  }

  // To the dQ writer.
  FA3_DEV void hand_over(const DqAcc& dq) {
    smem.dq_empty[wg].wait(dq_phase ^ 1);
    FA3_UNROLL
    for (int g = 0; g < kCfg.dq_columns() / 8; ++g) {
      ptx::st_shared(
          reinterpret_cast<ptx::Vec<float, 4>*>(&smem.dq[wg][4 * (kWgThreads * g + thread)]),
          {{dq[4 * g], dq[4 * g + 1], dq[4 * g + 2], dq[4 * g + 3]}});
    }
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    smem.dq_full[wg].arrive_if(ptx::lane_index() == 0);
    dq_phase ^= 1;
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
        if constexpr (kCfg.softcap) x = ptx::tanh_approx(x * args.score_factor);
        x = ptx::ex2(ptx::fma(x, args.scale_log2, -lse[i % 2]));
      }
    }
    if (masked()) {
      const ptx::Vec<i32, 4> seen = ptx::ld_shared(&smem.seen[wg][thread]);
      FA3_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        FA3_UNROLL
        for (int i = 0; i < 4; ++i) {
          const i32 query = kQueries * tile + 8 * j + i % 2 + static_cast<i32>(column());
          if (query < seen[i / 2 * 2] || query >= seen[i / 2 * 2 + 1]) s[4 * j + i] = 0;
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
  FA3_DEV void make_ds(const QRing& ring, const Scores& s, const Fragment& p, Scores& dp) const {
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
      if constexpr (kCfg.softcap) {
        // · (1 − tanh²), whose tanh is made again from P: kept, it would take as many registers.
        const auto lse = stats_at(ring.stage, 0, 8 * j);
        FA3_UNROLL
        for (int i = 4 * j; i < 4 * j + 4; ++i) {
          const float t = (ptx::lg2(s[i]) + lse[i % 2]) * args.unscale;
          dp[i] = s[i] == 0 ? 0.f : dp[i] * ptx::fma(-t, t, 1.f);
        }
      }
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
    // K and V are read no more.
    NamedBarrier{kDoneBar, kWgThreads * kCfg.consumer_wgs}.sync();
    // Rows of no sequence may be more than the grid has tiles.
    const i32 step = kCfg.tile_kv() * static_cast<i32>(ptx::grid_dim_x());
    FA3_NO_UNROLL
    do {
      store_rows<kK>(args.dk, work, dk, args.head_dim_qk, smem.k);
      store_rows<kV>(args.dv, work, dv, args.head_dim_v, smem.v);
      work.key += step;
      ptx::warp_sync();  // its rows of K and V are written again  sim:spare(again)
    } while (work.batch == args.batch && work.key < work.kv.rows);
  }
  // FP32 two neighbours at a time, 16 bits by way of the consumer's rows of `tile`.
  template <TileLayout kTile, int N>
  FA3_DEV void store_rows(const BwdTensor& to, const BwdWork& work, const ptx::Acc<N>& acc,
                          i32 columns, u8* tile) const {
    if (to.data == nullptr) return;
    const i64 first = work.batch * to.batch +
                      (i64{first_row(args.kv_axis, work.kv)} + work.key) * to.row +
                      work.head_kv * to.head;
    if (to.f32) {
      FA3_UNROLL
      for (u32 h = 0; h < 2; ++h) {
        const i32 row = static_cast<i32>(own_row() + 8 * h);
        if (work.key + row >= work.kv.rows) continue;
        FA3_UNROLL
        for (int c = 0; c < N; c += 8) {
          if (c >= columns) break;
          store_two<kType>(to, first + row * to.row + c + column(), acc[c / 2 + 2 * h],
                           acc[c / 2 + 2 * h + 1]);
        }
      }
      return;
    }
    constexpr u32 kChunks = N / 8, kWidth = static_cast<u32>(kTile.panel_width());  // of 16 bytes
    u8* const own = tile + own_bytes<kTile>();
    store_operand16<kType, kTile.swizzle()>(own, acc, kTile.rows);
    ptx::warp_sync();
    const u32 warp_row = 16 * (ptx::warp_index() % 4);
    FA3_NO_UNROLL
    for (u32 i = ptx::lane_index(); i < 16 * kChunks; i += 32) {
      const u32 row = warp_row + i / kChunks, at = 16 * (i % kChunks);
      const i32 own_key = static_cast<i32>(kWgRows * wg + row);
      if (work.key + own_key >= work.kv.rows || static_cast<i32>(at / 2) >= columns) continue;
      const u8* const panel = own + at / kWidth * static_cast<u32>(kTile.panel_bytes());
      using Chunk = ptx::Vec<u32, 4>;
      ptx::st_global(
          reinterpret_cast<Chunk*>(static_cast<u16*>(to.data) + first + own_key * to.row + at / 2),
          ptx::ld_shared(reinterpret_cast<const Chunk*>(
              panel + panel_offset(row, at % kWidth, kTile.swizzle()))));
    }
  }
};

}  // namespace fa3::sm90
