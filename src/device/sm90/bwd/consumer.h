// SPDX-License-Identifier: BSD-3-Clause
// consumer.h — one of the backward kernel's consumer warpgroups: 64 keys, whose dK and dV stay in
// its registers. Scores lie transposed, a key a row: Sᵀ = K·Qᵀ, dPᵀ = V·dOᵀ, so that P and dS are
// already the A operands of dV += Pᵀ·dO and dK += dSᵀ·Q. Only dQ = dS·K takes the keys of all
// consumers: dS goes through shared memory, and each makes a part of dQ, which it adds in FP32 to
// global memory.
#pragma once

#include "device/hopper/fragment.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
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
  static constexpr int kPartQueries = 64, kParts = kQueries / kPartQueries;
  using Smem = BwdSmem<kCfg>;
  using Scores = ptx::Acc<kPartQueries>;
  using Fragment = ptx::AFrag[kPartQueries / 16];
  using DqAcc = ptx::Acc<kCfg.dq_columns()>;
  using KRows = KMajorOperand<kCfg.k_tile()>;
  using KColumns = MnMajorOperand<kCfg.k_tile()>;
  using VRows = KMajorOperand<kCfg.v_tile()>;
  using QRows = KMajorOperand<kCfg.q_tile()>;
  using QColumns = MnMajorOperand<kCfg.q_tile()>;
  using DoutRows = KMajorOperand<kCfg.dout_tile()>;
  using DoutColumns = MnMajorOperand<kCfg.dout_tile()>;
  using DsColumns = MnMajorOperand<kCfg.ds_tile()>;

  static constexpr bool kByRows = kCfg.dq_by_rows();
  static constexpr int kOwnPanels = kCfg.dq_columns() / kCfg.k_tile().panel_columns();

  Smem& smem;
  const BwdArgs& args;
  u32 wg;  // among the consumers
  u32 thread;
  KRows k_rows;        // this consumer's keys
  KColumns k_columns;  // of all keys, the columns of its part of dQ
  VRows v_rows;
  QRows q_rows;  // of stage 0, as the others
  QColumns q_columns;
  DoutRows dout_rows;
  DoutColumns dout_columns;
  DsColumns ds_columns;  // of all keys, the rows of its part of dQ
  Ring<kCfg.stages> ring;
  Ring<BwdConfig::kDsSlots> ds_ring;
  Range<i32> rows[2];  // queries that see each of the thread's two keys
  ptx::Acc<kCfg.head_dim_qk> dk;
  ptx::Acc<kCfg.head_dim_v> dv;

  FA3_DEV BwdConsumer(Smem& smem, const BwdArgs& args, u32 wg)
      : smem(smem),
        args(args),
        wg(wg),
        thread(ptx::thread_index() % kWgThreads),
        k_rows(tile_at<KRows>(smem.k + kWgRows * wg * kCfg.k_tile().panel_width())),
        k_columns(tile_at<KColumns>(smem.k +
                                    (kByRows ? 0 : wg * kOwnPanels * kCfg.k_tile().panel_bytes()))),
        v_rows(tile_at<VRows>(smem.v + kWgRows * wg * kCfg.v_tile().panel_width())),
        q_rows(tile_at<QRows>(smem.q)),
        q_columns(tile_at<QColumns>(smem.q)),
        dout_rows(tile_at<DoutRows>(smem.dout)),
        dout_columns(tile_at<DoutColumns>(smem.dout)),
        ds_columns(
            tile_at<DsColumns>(smem.ds[0] + (kByRows ? wg * kCfg.ds_tile().panel_bytes() : 0))) {}

  FA3_DEV void run() {
    dk.zero();
    dv.zero();
    const BwdWork work = BwdWork::of_cta<kCfg>(args);
    if (!work.range.empty()) {
      FA3_UNROLL
      for (int h = 0; h < 2; ++h)
        rows[h] = rows_of_key(args.band, work.q.used, work.kv.used, key(work) + 8 * h);
      smem.kv_full.wait(0);
      FA3_NO_UNROLL
      for (i32 h = 0; h < args.group_size; ++h)
        attend(of_warp(work.range), args.tiles.first(work.batch, work.head_kv * args.group_size + h,
                                                     work.q.begin, kQueries));
    }
    store();
  }
  FA3_DEV i32 key(const BwdWork& work) const {  // the first of the thread's two
    return work.key + static_cast<i32>(kWgRows * wg + fragment_row(thread));
  }

  // Through reductions, so that the compiler sees one value per warp and keeps rings and
  // descriptors in uniform registers.
  FA3_DEV static TileRange of_warp(const TileRange& range) {
    const auto one = [](i32 x) { return static_cast<i32>(ptx::redux_or(static_cast<u32>(x))); };
    return {one(range.first), one(range.unmasked_first), one(range.unmasked_end), one(range.end)};
  }

  // The Q tiles of a query head, which begin at `first`.
  FA3_DEV void attend(const TileRange& range, i64 first) {
    i32 tile = range.first;
    FA3_NO_UNROLL
    for (; tile < range.unmasked_first; ++tile) step<true>(tile, first + tile);
    FA3_NO_UNROLL
    for (; tile < range.unmasked_end; ++tile) step<false>(tile, first + tile);
    FA3_NO_UNROLL
    for (; tile < range.end; ++tile) step<true>(tile, first + tile);
  }

  // P from scores, by the columns' LSE.
  template <bool kMasked>
  FA3_DEV void make_p(i32 tile, int part, Scores& s) const {
    FA3_UNROLL
    for (int j = 0; j < kPartQueries / 8; ++j) {
      const auto lse = stats_at(ring.stage, 0, kPartQueries * part + 8 * j);
      FA3_UNROLL
      for (int n = 0; n < 2; ++n) {
        FA3_UNROLL
        for (int h = 0; h < 2; ++h) {
          float& x = s[4 * j + 2 * h + n];
          x = ptx::ex2(ptx::fma(x, args.scale_log2, -lse[n]));
          if constexpr (kMasked) {
            const i32 query =
                kQueries * tile + kPartQueries * part + 8 * j + n + static_cast<i32>(column());
            if (query < rows[h].lo || query >= rows[h].hi) x = 0;
          }
        }
      }
    }
  }
  // dS = P ∘ (dP − δ). Where the mask has hidden a pair, dP may be anything.
  template <bool kMasked>
  FA3_DEV void make_ds(int part, const Scores& p, Scores& dp) const {
    FA3_UNROLL
    for (int j = 0; j < kPartQueries / 8; ++j) {
      const auto delta = stats_at(ring.stage, 1, kPartQueries * part + 8 * j);
      FA3_UNROLL
      for (int n = 0; n < 2; ++n) {
        FA3_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int i = 4 * j + 2 * h + n;
          const float ds = p[i] * (dp[i] - delta[n]);
          dp[i] = kMasked && p[i] == 0 ? 0.f : ds;
        }
      }
    }
  }
  FA3_DEV u32 column() const { return fragment_column(thread); }
  FA3_DEV ptx::Vec<float, 2> stats_at(u32 stage, int which, int row) const {
    return ptx::ld_shared(reinterpret_cast<const ptx::Vec<float, 2>*>(
        &smem.stats[stage][which][row + static_cast<int>(column())]));
  }

  template <bool kMasked>
  FA3_DEV void step(i32 tile, i64 index) {
    const u32 stage = ring.stage;
    smem.q_full[stage].wait(ring.phase);
    smem.dout_full[stage].wait(ring.phase);
    Fragment p[kParts], ds[kParts];  // until their GEMMs are complete
    FA3_UNROLL
    for (int part = 0; part < kParts; ++part) step_part<kMasked>(tile, part, p[part], ds[part]);
    ptx::fence_proxy_async_shared();
    // All consumers have stored dS, have left the tile before's, and have read LSE and δ.
    NamedBarrier{kDsBar, kWgThreads * kCfg.consumer_wgs}.sync();
    DqAcc dq;
    issue_dq(ds_columns.after(ds_ring.stage * static_cast<u32>(kCfg.ds_tile().bytes())), dq);
    gemm_wait<1>(dv);
    ptx::fence_regs(dk);
    const bool leader = thread == 0;
    smem.dout_empty[stage].arrive_if(leader);
    smem.q_empty[stage].arrive_if(leader);
    gemm_wait<0>(dq);
    add_dq(index, dq);
    ring.advance();
    ds_ring.advance();
  }

  // 64 queries of the tile: dV, dK, and dS in shared memory. The accumulators are not members, nor
  // initialised: they would take registers all the time.
  template <bool kMasked>
  FA3_DEV void step_part(i32 tile, int part, Fragment& p_frag, Fragment& ds_frag) {
    const u32 row = static_cast<u32>(kPartQueries * part);
    const u32 q_bytes = ring.stage * static_cast<u32>(kCfg.q_tile().bytes());
    const u32 dout_bytes = ring.stage * static_cast<u32>(kCfg.dout_tile().bytes());
    Scores s, dp;
    gemm_ss<kType, kCfg.head_dim_qk / 16>(s, k_rows, q_rows.after(q_bytes).from_row(row),
                                          kOverwrite);
    gemm_ss<kType, kCfg.head_dim_v / 16>(dp, v_rows, dout_rows.after(dout_bytes).from_row(row),
                                         kOverwrite);
    gemm_wait<1>(s);
    make_p<kMasked>(tile, part, s);
    gemm_wait<0>(dp);
    make_ds<kMasked>(part, s, dp);
    to_operand16<kType>(p_frag, s);
    to_operand16<kType>(ds_frag, dp);
    gemm_rs<kType>(dv, p_frag, dout_columns.after(dout_bytes).from_k(row), kAccumulate);
    constexpr TileLayout kDs = kCfg.ds_tile();
    u8* const own =
        smem.ds[ds_ring.stage] + kDs.panel_bytes() * part + kWgRows * wg * kDs.panel_width();
    store_fragment16<kDs.swizzle()>(own, ds_frag, kCfg.tile_kv());
    gemm_rs<kType>(dk, ds_frag, q_columns.after(q_bytes).from_k(row), kAccumulate);
  }

  FA3_DEV void issue_dq(const DsColumns& ds, DqAcc& dq) const {
    gemm_ss<kType, kCfg.tile_kv() / 16>(dq, ds, k_columns, kOverwrite);
  }

  // Registers 4g … 4g + 3 of all threads lie side by side.
  FA3_DEV void add_dq(i64 tile, const DqAcc& dq) const {
    constexpr i64 kPart = kWgRows * kCfg.dq_columns();
    float* const to = args.dq_sum + tile * kCfg.dq_floats() + wg * kPart + 4 * thread;
    FA3_UNROLL
    for (int g = 0; g < kCfg.dq_columns() / 8; ++g) {
      ptx::red_add_v4_f32(to + 4 * kWgThreads * g,
                          {{dq[4 * g], dq[4 * g + 1], dq[4 * g + 2], dq[4 * g + 3]}});
    }
  }

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
      const i32 i = key(work) + 8 * h;
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
