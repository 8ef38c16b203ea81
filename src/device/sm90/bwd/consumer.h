// SPDX-License-Identifier: BSD-3-Clause
// consumer.h — one of the backward kernel's consumer warpgroups: 64 keys, whose dK and dV stay in
// its registers. Scores lie transposed, a key a row: Sᵀ = K·Qᵀ, dPᵀ = V·dOᵀ, so that P and dS are
// already the A operands of dV += Pᵀ·dO and dK += dSᵀ·Q. dS goes through shared memory, too, since
// dQ = dS·K takes the keys of all consumers; each makes a part of dQ, which leaves by way of shared
// memory (producer.h).
//
// GEMMs of step i are issued in the order dP(i), dV(i), dQ(i), dK(i), S(i+1). GEMMs whose operands
// both lie in shared memory leave no room for loads and stores there, so these run under dV and dK,
// of which one is in registers: dS's way out under dV; dQ's, and LSE and δ of the next tile, under
// dK. Exponentials run under dP.
#pragma once

#include "device/sm90/bwd/parts.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct BwdConsumer : BwdParts<kCfg> {
  using Parts = BwdParts<kCfg>;
  using Parts::args, Parts::base, Parts::smem, Parts::thread, Parts::wg;
  using Parts::kType, Parts::kK, Parts::kV, Parts::kQ, Parts::kDout;
  using typename Parts::DqAcc, typename Parts::Fragment, typename Parts::Scores;
  using typename Parts::QRing, typename Parts::DoutRing, typename Parts::DsRing;
  using typename Parts::Stats;

  // Ids and slopes need the registers of what is made of the thread's index before the loop. Where
  // there are enough, to make it anew in each step costs more than it gives (bwd_sm90.md).
  static constexpr bool kTight = kCfg.functors && !kCfg.roomy();

  QRing q_ring;  // S's, dK's
  DoutRing dout_ring;
  DsRing ds_ring;
  bool begun = false;
  ptx::Acc<kCfg.head_dim_qk> dk;
  ptx::Acc<kCfg.head_dim_v> dv;

  FA3_DEV BwdConsumer(BwdSmem<kCfg>& smem, const BwdArgs& args, u32 wg) : Parts(smem, args, wg) {}

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
    smem.k_full.wait(0);
    smem.q_full[0].wait(0);
    this->begin_tile();
    Stats lse = this->stats(0, 0), delta = this->stats(0, 1);
    Scores s;
    this->issue_s(q_ring, s);
    smem.v_full.wait(0);
    FA3_NO_UNROLL
    for (; kCfg.lists() ? !this->last : left > 1; --left) step<true>(s, lse, delta);
    if constexpr (!kCfg.roomy()) this->thread_anew();  // nothing of it for the last step is kept
    step<false>(s, lse, delta);
  }

  // S of its tile is under way; kNext: there is a tile behind it, whose S is when it returns.
  template <bool kNext>
  FA3_DEV void step(Scores& s, Stats& lse, Stats& delta) {
    const bool leader = thread == 0;
    // Every step anew, so that the compiler keeps no descriptors of K and V over the loop: they are
    // more than the registers that are left.
    base = ptx::shfl_idx(base, 0);
    if constexpr (kTight) this->thread_anew();
    Scores ds;
    smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
    gemm_wait<0>(s);
    ptx::fence_regs(dk);
    smem.q_empty[q_ring.before().stage].arrive_if(leader && begun);
    begun = true;
    this->issue_dp(dout_ring, ds);
    Fragment p;
    this->make_p(q_ring.stage, lse, s, p);
    gemm_wait<0>(ds);
    gemm_rs<kType>(dv, p, this->template columns<kDout>(smem.dout, dout_ring), kAccumulate);
    this->make_ds(q_ring.stage, delta, s, p, ds);
    const typename Parts::Two scales = this->load_scales(q_ring);
    Fragment a;
    to_operand16<kType>(a, ds);
    this->put_ds(ds_ring, ds);
    // Both consumers' dS is there. That it may be overwritten in the next step but one follows: the
    // other consumer comes here again with its dQ complete.
    NamedBarrier{kDsBar, kWgThreads * kCfg.consumer_wgs}.sync();
    DqAcc dq;
    this->issue_dq(ds_ring, dq);
    ds_ring.advance();
    gemm_rs<kType>(  // sim:spare(fenced)
        dk, a, this->template columns<kQ>(smem.q, q_ring), kAccumulate);
    gemm_wait<2>(dv);
    smem.dout_empty[dout_ring.stage].arrive_if(leader);
    dout_ring.advance();
    if constexpr (kTight) this->thread_anew();
    dq_empty(wg).sync();
    gemm_wait<1>(dq);
    this->put_dq(smem.dq[wg], q_ring, scales, dq, 0);
    const QRing q_next = q_ring.next();
    if constexpr (kNext) {
      smem.q_full[q_next.stage].wait(q_next.phase);
      lse = this->stats(q_next.stage, 0);
      delta = this->stats(q_next.stage, 1);
    }
    gemm_wait<0>(dk);
    if constexpr (kNext) {
      this->next_tile();
      this->begin_tile();
      this->issue_s(q_next, s);
    }
    this->release_dq(0);
    q_ring = q_next;
  }
};

}  // namespace fa3::sm90
