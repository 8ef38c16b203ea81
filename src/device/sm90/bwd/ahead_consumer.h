// SPDX-License-Identifier: BSD-3-Clause
// ahead_consumer.h — the backward's consumers at head dim 64, where exponentials take as long as
// two GEMMs: as in consumer.h, but S and dP run one tile ahead of the rest and dQ one behind, and
// the second consumer starts half a step late, so that one makes P under the GEMMs of the other.
//
// GEMMs of step i are issued in the order dV(i), dQ(i−1), S(i+1), dP(i+1), dK(i): exponentials run
// under dP and dK, dS under dK, dQ's way out under S. dS(i) has until the next step to reach the
// other consumer.
#pragma once

#include "device/sm90/bwd/parts.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct BwdAheadConsumer : BwdParts<kCfg> {
  using Parts = BwdParts<kCfg>;
  using Parts::args, Parts::base, Parts::smem, Parts::thread, Parts::tile, Parts::wg;
  using Parts::kQueries, Parts::kType, Parts::kK, Parts::kV, Parts::kQ, Parts::kDout, Parts::kDs;
  using typename Parts::DqAcc, typename Parts::Fragment, typename Parts::Scores;
  using typename Parts::QRing, typename Parts::DoutRing, typename Parts::DsRing;
  static_assert(!kCfg.exact_p(), "P as it is rounded: in FP32 it takes registers of S");

  QRing q_ring;        // dK's
  DoutRing dout_ring;  // dV's
  DsRing ds_ring;      // of the dS that is stored next, and that whose dQ is due
  DsRing due_ring;
  ptx::Acc<kCfg.head_dim_qk> dk;
  ptx::Acc<kCfg.head_dim_v> dv;

  FA3_DEV BwdAheadConsumer(BwdSmem<kCfg>& smem, const BwdArgs& args, u32 wg)
      : Parts(smem, args, wg) {}

  FA3_DEV void run(const BwdWork& work) {
    dk.zero();
    dv.zero();
    if (this->has_tiles(work)) attend(this->start(work));
    FA3_UNROLL
    for (int i = 0; i < kCfg.head_dim_qk / 2; ++i) dk[i] *= args.scale;
    this->store_tiles([this](const BwdWork& to) {
      this->template store_rows<kV>(args.dv, to, dv, args.head_dim_v, smem.v);
      this->template store_rows<kV>(args.dk, to, dk, args.head_dim_qk, smem.v);
    });
  }

  // The Q tiles of all the group's heads, one sequence of steps.
  FA3_DEV void attend(i32 left) {
    Fragment p;
    Scores ds;
    begin(p, ds);
    if (left == 1) {
      step<true, false>(p, ds);
    } else {
      step<true, true>(p, ds);
      FA3_NO_UNROLL
      for (--left; left > 1; --left) step<false, true>(p, ds);
      step<false, false>(p, ds);
    }
    finish();
  }

  // P and dS of the first tile.
  FA3_DEV void begin(Fragment& p, Scores& ds) {
    smem.k_full.wait(0);
    Scores s;
    smem.q_full[0].wait(0);
    // Half a step later than the first consumer: together they would leave the tensor cores idle
    // while both make P.
    constexpr NamedBarrier kStart{kStartBar, kWgThreads * kCfg.consumer_wgs};
    if (wg == 1) kStart.sync();  // sim:spare(late)
    this->issue_s(q_ring, s);
    smem.v_full.wait(0);
    smem.dout_full[0].wait(0);
    this->issue_dp(dout_ring, ds);
    gemm_wait<1>(s);
    this->make_p(q_ring.stage, this->stats(q_ring.stage, 0), s, p);
    if (wg == 0) kStart.arrive();
    gemm_wait<0>(ds);
    this->make_ds(q_ring.stage, this->stats(q_ring.stage, 1), s, p, ds);
  }

  // kFirst: no tile is before this one, so no dQ is due; kNext: there is one behind it.
  template <bool kFirst, bool kNext>
  FA3_DEV void step(Fragment& p, Scores& ds) {
    const bool leader = thread == 0;
    base = ptx::shfl_idx(base, 0);  // as in consumer.h
    if constexpr (!kFirst) {
      gemm_wait<0>(dk);
      smem.q_empty[q_ring.before().stage].arrive_if(leader);
    }
    // Long before they are needed: a load takes hundreds of clocks beside GEMMs.
    const typename Parts::Two scales = this->load_scales(kFirst ? q_ring : q_ring.before());
    smem.ds_empty[ds_ring.stage].wait(ds_ring.phase ^ 1);
    this->put_ds(ds_ring, ds);
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    smem.ds_full[ds_ring.stage][wg].arrive_if(ptx::lane_index() == 0);
    gemm_rs<kType>(dv, p, this->template columns<kDout>(smem.dout, dout_ring), kAccumulate);
    DqAcc dq;
    if constexpr (!kFirst) {
      smem.ds_full[due_ring.stage][1 - wg].wait(due_ring.phase);
      this->issue_dq(due_ring, dq);
    }
    // dV is complete: dO's stage is free, and registers of P.
    gemm_wait<kFirst ? 0 : 1>(dv);
    smem.dout_empty[dout_ring.stage].arrive_if(leader);
    dout_ring.advance();
    Scores s;
    const QRing q_next = q_ring.next();
    if constexpr (kNext) {
      smem.q_full[q_next.stage].wait(q_next.phase);
      this->issue_s(q_next, s);
    }
    if constexpr (!kFirst) {
      gemm_wait<kNext ? 1 : 0>(dq);
      smem.ds_empty[due_ring.stage].arrive_if(leader);
      store_dq(q_ring.before(), scales, dq);
    }
    due_ring = ds_ring;
    ds_ring.advance();
    if constexpr (kNext) {
      smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
      this->issue_dp(dout_ring, ds);
    }
    if constexpr (!kFirst) this->release_dq(wg);  // behind dP, which covers the fence's time
    if constexpr (kNext) this->next_tile();
    // All warps of this consumer have stored their dS.
    NamedBarrier{kOwnDsBar + wg, kWgThreads}.sync();  // sim:spare(own_ds)
    gemm_ss<kType, kQueries / 16>(                    // sim:spare(fenced)
        dk, this->template rows<kDs>(smem.ds, due_ring, this->template own_bytes<kDs>()),
        this->template columns<kQ>(smem.q, q_ring), kAccumulate);
    if constexpr (kNext) {
      gemm_wait<2>(s);
      this->make_p(q_next.stage, this->stats(q_next.stage, 0), s, p);
      gemm_wait<1>(ds);
      this->make_ds(q_next.stage, this->stats(q_next.stage, 1), s, p, ds);
      q_ring.advance();
    }
  }

  FA3_DEV void finish() {
    DqAcc dq;
    smem.ds_full[due_ring.stage][1 - wg].wait(due_ring.phase);
    this->issue_dq(due_ring, dq);
    gemm_wait<0>(dq);
    ptx::fence_regs(dk);
    const typename Parts::Two scales = this->load_scales(q_ring);
    store_dq(q_ring, scales, dq);
    this->release_dq(wg);
  }

  // Ring: of Q.
  FA3_DEV void store_dq(const QRing& ring, typename Parts::Two scales, DqAcc& dq) {
    dq_empty(wg).sync();
    this->note_odd(ring, scales, dq);
    this->put_dq(scales, dq, wg);
  }
};

}  // namespace fa3::sm90
