// SPDX-License-Identifier: BSD-3-Clause
// consumer.h — one of the backward kernel's consumer warpgroups: 64 keys, whose dK and dV stay in
// its registers. Scores lie transposed, a key a row: Sᵀ = K·Qᵀ, dPᵀ = V·dOᵀ, so that P is already
// the A operand of dV += Pᵀ·dO. dS goes through shared memory, since dQ = dS·K takes the keys of
// all consumers; each makes a part of dQ, which leaves by way of shared memory (producer.h).
//
// S and dP run one tile ahead. GEMMs of step i are issued in the order dV(i), dQ(i−1), S(i+1),
// dP(i+1), dK(i): exponentials run under dP and dK, dS under dK, dQ's way out under S. dS(i) has
// until the next step to reach the others, so there is no barrier of all consumers.
#pragma once

#include "device/sm90/bwd/parts.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct BwdConsumer : BwdParts<kCfg> {
  using Parts = BwdParts<kCfg>;
  using Parts::args, Parts::base, Parts::smem, Parts::thread, Parts::tile, Parts::wg;
  using Parts::kQueries, Parts::kType, Parts::kK, Parts::kV, Parts::kQ, Parts::kDout, Parts::kDs;
  using typename Parts::Ahead, typename Parts::QRing, typename Parts::DoutRing,
      typename Parts::DsRing;
  using typename Parts::DqAcc, typename Parts::Fragment, typename Parts::Scores;
  // Whether the first step, which has no dQ to make, is code of its own: ptxas spills with it at
  // d 128, and without it at d 64. Else it makes one of its own dS, which goes nowhere.
  static constexpr bool kFirstApart = !kCfg.exact_p();
  // Whether dV is issued before dS is stored, S before dV is complete, and LSE and δ are loaded
  // before the GEMMs that they belong to are awaited: as registers allow.
  static constexpr bool kEarly = kCfg.exact_p();

  QRing q_ring;        // dK's
  DoutRing dout_ring;  // dV's
  DsRing ds_ring;      // of the dS that is stored next, and that whose dQ is due
  DsRing due_ring;
  bool begun = false;
  ptx::Acc<kCfg.head_dim_qk> dk;
  ptx::Acc<kCfg.head_dim_v> dv;

  FA3_DEV BwdConsumer(BwdSmem<kCfg>& smem, const BwdArgs& args, u32 wg) : Parts(smem, args, wg) {}

  FA3_DEV void run(const BwdWork& work) {
    dk.zero();
    dv.zero();
    if (!work.range.empty()) {
      attend(this->start(work));
    }
    FA3_UNROLL
    for (int i = 0; i < kCfg.head_dim_qk / 2; ++i) dk[i] *= args.scale;
    this->store_tiles([this](const BwdWork& to) {
      this->template store_rows<kK>(args.dk, to, dk, args.head_dim_qk, smem.k);
      this->template store_rows<kV>(args.dv, to, dv, args.head_dim_v, smem.v);
    });
  }

  // The Q tiles of all the group's heads, one sequence of steps.
  FA3_DEV void attend(i32 left) {
    Fragment p;
    Scores ds;
    begin(p, ds);
    if (kFirstApart && left == 1) {
      step<true, false>(p, ds);
    } else {
      if constexpr (kFirstApart) step<true, true>(p, ds), --left;
      FA3_NO_UNROLL
      for (; left > 1; --left) step<false, true>(p, ds);
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
    this->make_p(q_ring.stage, s, p);
    if (wg == 0) kStart.arrive();
    gemm_wait<0>(ds);
    this->make_ds(q_ring.stage, s, p, ds);
  }

  // kFirst: no tile is before this one, so no dQ is due; kNext: there is one behind it.
  template <bool kFirst, bool kNext>
  FA3_DEV void step(Fragment& p, Scores& ds) {
    const bool leader = thread == 0;
    // Every step anew, so that the compiler keeps no descriptors of K and V over the loop: they are
    // more than the registers that are left.
    base = ptx::shfl_idx(base, 0);
    if constexpr (!kFirst) {
      gemm_wait<0>(dk);
      smem.q_empty[q_ring.before().stage].arrive_if(leader && (kFirstApart || begun));
    }
    if constexpr (kEarly) issue_dv(p);
    const bool due = !kFirst && (kFirstApart || begun);
    // Long before they are needed: a load takes hundreds of clocks beside GEMMs.
    const typename Parts::Two scales = this->load_scales(due ? q_ring.before() : q_ring);
    smem.ds_empty[ds_ring.stage].wait(ds_ring.phase ^ 1);
    this->store_ds(ds_ring, ds);
    if constexpr (!kEarly) issue_dv(p);
    DqAcc dq;
    if constexpr (!kFirst) {
      // Its own has been waited for by dK, but for a first one, which goes nowhere.
      if (!due) smem.ds_full[due_ring.stage][wg].wait(due_ring.phase);
      smem.ds_full[due_ring.stage][1 - wg].wait(due_ring.phase);
      this->issue_dq(due_ring, dq);
    }
    constexpr int kDq = kFirst ? 0 : 1, kS = kNext ? 1 : 0;  // GEMMs behind dV
    Scores s;
    const QRing q_next = q_ring.next();
    if constexpr (!kEarly) release_dout<kDq>();
    if constexpr (kNext) {
      smem.q_full[q_next.stage].wait(q_next.phase);
      this->issue_s(q_next, s);
    }
    if constexpr (kEarly) release_dout<kDq + kS>();
    if constexpr (!kFirst) gemm_wait<kS>(dq);
    if (due) {
      smem.ds_empty[due_ring.stage].arrive_if(leader);
      store_dq(q_ring.before(), scales, dq);
    }
    begun = true;
    due_ring = ds_ring;
    ds_ring.advance();
    if constexpr (kNext) {
      smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
      this->issue_dp(dout_ring, ds);
    }
    if (due) this->release_dq(0);  // behind dP, which covers the fence's time
    [[maybe_unused]] Ahead lse;
    if constexpr (kNext) this->next_tile();
    if constexpr (kNext && kEarly) lse = this->load_ahead(q_next.stage, 0);
    smem.ds_full[due_ring.stage][wg].wait(due_ring.phase);  // sim:spare(own_ds)
    gemm_ss<kType, kQueries / 16>(                          // sim:spare(fenced)
        dk, this->template rows<kDs>(smem.ds, due_ring, this->template own_bytes<kDs>()),
        this->template columns<kQ>(smem.q, q_ring), kAccumulate);
    if constexpr (kNext) {
      gemm_wait<2>(s);
      if constexpr (kEarly)
        this->make_p(q_next.stage, lse, s, p);
      else
        this->make_p(q_next.stage, s, p);
      if constexpr (kEarly && !kCfg.softcap) {
        const Ahead delta = this->load_ahead(q_next.stage, 1);
        gemm_wait<1>(ds);
        this->make_ds(delta, s, p, ds);
      } else {
        gemm_wait<1>(ds);
        this->make_ds(q_next.stage, s, p, ds);
      }
      q_ring.advance();
    }
  }
  FA3_DEV void issue_dv(Fragment& p) {
    gemm_rs<kType>(dv, p, this->template columns<kDout>(smem.dout, dout_ring), kAccumulate);
  }
  // kBehind: GEMMs that are under way behind dV.
  template <int kBehind>
  FA3_DEV void release_dout() {
    gemm_wait<kBehind>(dv);
    smem.dout_empty[dout_ring.stage].arrive_if(thread == 0);
    dout_ring.advance();
  }

  FA3_DEV void finish() {
    DqAcc dq;
    smem.ds_full[due_ring.stage][1 - wg].wait(due_ring.phase);
    this->issue_dq(due_ring, dq);
    gemm_wait<0>(dq);
    ptx::fence_regs(dk);
    const typename Parts::Two scales = this->load_scales(q_ring);
    store_dq(q_ring, scales, dq);
    this->release_dq(0);
  }

  // Ring: of Q.
  FA3_DEV void store_dq(const QRing& ring, const typename Parts::Two& scales, DqAcc& dq) {
    dq_empty(wg).sync();
    this->put_dq(smem.dq[wg], ring, scales, dq, 0);
  }
};

}  // namespace fa3::sm90
