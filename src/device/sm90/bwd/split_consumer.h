// SPDX-License-Identifier: BSD-3-Clause
// split_consumer.h — the backward's consumers for head dims above 128, where dK and dV of 64 keys
// fill the registers of a warpgroup each. The first makes P, dS and dV; the second takes dS from
// shared memory and makes dK and dQ. So one computes scores while the other's GEMMs run.
//
// Two CTAs of a cluster have 64 keys each and exchange dS, so that a tile of dQ takes 128 keys:
// half as many additions, which would take longer than all GEMMs. Each makes half of its columns.
#pragma once

#include "device/ptx/bulk.h"
#include "device/sm90/bwd/parts.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct BwdSplitConsumer : BwdParts<kCfg> {
  using Parts = BwdParts<kCfg>;
  using Parts::args, Parts::base, Parts::smem, Parts::thread, Parts::tile, Parts::wg;
  using Parts::kQueries, Parts::kType, Parts::kK, Parts::kV, Parts::kQ, Parts::kDout, Parts::kDs;
  using typename Parts::DqAcc, typename Parts::Fragment, typename Parts::Scores;
  using typename Parts::QRing, typename Parts::DoutRing, typename Parts::DsRing;
  static_assert(kCfg.head_dim_qk == kCfg.head_dim_v, "one accumulator for dV or dK");
  static constexpr TileLayout kPeerK = kCfg.peer_k_tile();

  // Behind the exponentials: there are no registers for dP while ids, slopes or masks are used.
  static constexpr bool kDpLate = kCfg.lists();

  QRing q_ring;
  DoutRing dout_ring;
  Ring<1> ds_ring;                 // own dS and the other CTA's
  ptx::Acc<kCfg.head_dim_qk> sum;  // dV or dK

  FA3_DEV BwdSplitConsumer(BwdSmem<kCfg>& smem, const BwdArgs& args, u32 wg)
      : Parts(smem, args, wg) {}

  FA3_DEV void run(const BwdWork& work) {
    if (wg == 0)
      run_as<true>(work);
    else
      run_as<false>(work);
  }

  // The whole of it for each role: where both go the same way again, ptxas moves the accumulator.
  template <bool kDv>
  FA3_DEV void run_as(const BwdWork& work) {
    wg = kDv ? 0 : 1;  // as it is; the compiler then keeps none
    sum.zero();
    if (this->has_tiles(work)) {
      const i32 left = this->start(work);
      if constexpr (kDv)
        attend_dv(left);
      else
        attend_dk(left);
    }
    if constexpr (!kDv) {
      FA3_UNROLL
      for (int i = 0; i < kCfg.head_dim_qk / 2; ++i) sum[i] *= args.scale;
    }
    this->store_tiles([this](const BwdWork& to) {
      if constexpr (kDv)
        this->template store_rows<kV>(args.dv, to, sum, args.head_dim_v, smem.v);
      else
        this->template store_rows<kK>(args.dk, to, sum, args.head_dim_qk, smem.k);
    });
  }
  FA3_DEV bool is_last(i32& left) const { return kCfg.lists() ? this->last : --left == 0; }

  // ---- P, dS and dV -----------------------------------------------------------------------------

  FA3_DEV void attend_dv(i32 left) {
    smem.k_full.wait(0);
    smem.v_full.wait(0);
    FA3_NO_UNROLL
    do {
      step_dv();
    } while (!is_last(left));
  }
  FA3_DEV void step_dv() {
    base = ptx::shfl_idx(base, 0);  // as in consumer.h
    if constexpr (kCfg.lists()) this->thread_anew();
    Scores s, ds;
    ptx::AFrag ones;
    set_ones(ones);
    Fragment p;
    smem.q_full[q_ring.stage].wait(q_ring.phase);
    this->begin_tile();
    const float flag = this->template coarse_flag<kCfg.adds_mask()>(q_ring.stage);
    this->issue_s(q_ring, ones, s);
    if constexpr (!kDpLate) issue_dp(ones, ds);
    gemm_wait<kDpLate ? 0 : 1>(s);
    this->template make_tile_p<kCfg.adds_mask()>(flag, q_ring.stage, s,
                                                 [this](int j) { return this->mask_part(j); });
    if constexpr (kDpLate) issue_dp(ones, ds);
    to_operand16<kType>(p, s);
    gemm_rs<kType>(  // sim:spare(group)
        sum, p, this->template columns<kDout>(smem.dout, dout_ring), kAccumulate);
    gemm_wait<1>(ds);
    this->make_ds(q_ring.stage, s, ds);
    // Nobody reads the dS before: both CTAs have made dQ of it.
    smem.ds_empty[0].wait_cluster(ds_ring.phase ^ 1);
    ds_ring.advance();
    this->put_ds(DsRing{}, ds);
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    send_ds();
    this->next_tile();
    q_ring.advance();
    gemm_wait<0>(sum);
    smem.dout_empty[dout_ring.stage].arrive_if(thread == 0);
    dout_ring.advance();
  }
  FA3_DEV void issue_dp(const ptx::AFrag& ones, Scores& dp) {
    smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
    Parts::issue_dp(dout_ring, ones, dp);
  }
  // To this CTA's other consumer and the other CTA's: a warp's rows of keys follow one another.
  FA3_DEV void send_ds() {
    if (ptx::lane_index() != 0) return;
    smem.ds_full[0][0].arrive();
    constexpr u32 kBytes = 16 * static_cast<u32>(kDs.panel_width());
    static_assert(kDs.panels() == 1, "a warp's rows: one copy");
    const u32 skip = thread / 32 * kBytes, peer = BwdCta<kCfg>::rank() ^ 1;
    ptx::bulk_copy_to_cluster(ptx::map_to_rank(ptx::smem_address(smem.peer_ds) + skip, peer),
                              ptx::smem_address(smem.ds[0]) + skip, kBytes,
                              ptx::map_to_rank(smem.peer_ds_full.address(), peer));
  }

  // ---- dK and dQ --------------------------------------------------------------------------------

  FA3_DEV void attend_dk(i32 left) {
    smem.k_full.wait(0);  // sim:spare(seen)
    smem.peer_k_full.wait(0);
    FA3_NO_UNROLL
    do {
      step_dk();
    } while (!is_last(left));
  }
  FA3_DEV void step_dk() {
    const bool leader = thread == 0;
    base = ptx::shfl_idx(base, 0);
    if (leader) smem.peer_ds_full.arrive_expect_tx(static_cast<u32>(kDs.bytes()));
    smem.q_full[q_ring.stage].wait(q_ring.phase);  // sim:spare(seen)
    this->begin_tile();
    const typename Parts::Two scales = this->load_scales(q_ring);
    smem.ds_full[0][0].wait(ds_ring.phase);
    gemm_ss<kType, kQueries / 16>(sum, this->template rows<kDs>(smem.ds, DsRing{}),
                                  this->template columns<kQ>(smem.q, q_ring), kAccumulate);
    DqAcc dq;
    this->issue_dq(DsRing{}, dq);
    gemm_wait<1>(sum);
    // S is complete, too, LSE with it: dS is made of it.
    smem.q_empty[q_ring.stage].arrive_if(leader);
    smem.peer_ds_full.wait(ds_ring.phase);
    ds_ring.advance();
    gemm_ss<kType, kCfg.tile_kv() / 16>(  // sim:spare(fenced)
        dq, this->template columns<kDs>(smem.peer_ds, Ring<1>{}),
        this->template columns<kPeerK>(smem.peer_k, Ring<1>{}), kAccumulate);
    gemm_wait<0>(dq);
    ptx::fence_regs(sum);
    smem.ds_empty[0].arrive_if(leader);
    smem.ds_empty[0].arrive_at_if(BwdCta<kCfg>::rank() ^ 1, leader);
    FA3_UNROLL
    for (int turn = 0; turn < kCfg.dq_turns(); ++turn) {
      FA3_UNROLL
      for (u32 w = 0; w < 2; ++w) {
        dq_empty(w).sync();
        this->release_dq(this->put_dq(scales, dq, w, turn), w, turn);
      }
    }
    this->next_tile();
    q_ring.advance();
  }
};

}  // namespace fa3::sm90
