// SPDX-License-Identifier: BSD-3-Clause
// consumer.h — one of the backward kernel's consumer warpgroups: 64 keys, whose dK and dV stay in
// its registers. Scores lie transposed, a key a row: Sᵀ = K·Qᵀ, dPᵀ = V·dOᵀ, so that P and dS are
// already the A operands of dV += Pᵀ·dO and dK += dSᵀ·Q. dS goes through shared memory, too, since
// dQ = dS·K takes the keys of all consumers; each makes a part of dQ, which leaves by way of shared
// memory (dq_writer.h).
//
// A step's GEMMs are issued in the order S, dP, half of dV, dQ, the rest of dV, dK. Those whose
// operands both lie in shared memory leave no room for stores there, so these run under dV and dK,
// of which one is in registers: dS goes out under the first half of dV, dQ under the second, and
// its fence under dK. Exponentials run under dP, and staggered() under the other consumer's GEMMs.
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

  // Ids, slopes and masks need the registers of what is made of the thread's index before the loop.
  // Where there are enough, to make it anew in each step costs more than it gives (bwd_sm90.md).
  static constexpr bool kTight = kCfg.lists() && !kCfg.roomy();

  // Behind the exponentials: there are no registers for dP while a mask of FP32 is added, or a mask
  // and ids are read.
  static constexpr bool kDpLate =
      kTight && (kCfg.attn_mask == MaskTensor::kF32 || (kCfg.has_mask() && kCfg.functors));

  QRing q_ring;
  DoutRing dout_ring;
  DsRing ds_ring;
  ptx::Acc<kCfg.head_dim_qk> dk;
  ptx::Acc<kCfg.head_dim_v> dv;

  FA3_DEV BwdConsumer(BwdSmem<kCfg>& smem, const BwdArgs& args, u32 wg) : Parts(smem, args, wg) {}

  FA3_DEV void run(const BwdWork& work) {
    dk.zero();
    dv.zero();
    // Ahead of the wait for tiles, which covers its loads.
    const bool coarse = kCfg.coarse_loop() && sees_coarse_rows(work);
    if (this->has_tiles(work)) {
      const i32 left = this->start(work);
      if (kCfg.coarse_loop() && !coarse)
        attend<false>(left);
      else
        attend<kCfg.adds_mask()>(left);
    }
    FA3_UNROLL
    for (int i = 0; i < kCfg.head_dim_qk / 2; ++i) dk[i] *= args.scale;
    this->store_tiles([this](const BwdWork& to) {
      this->template store_rows<kV>(args.dv, to, dv, args.head_dim_v, smem.v);
      this->template store_rows<kV>(args.dk, to, dk, args.head_dim_qk, smem.v);
    });
  }

  // Whether LSE of a row in one of the Q tiles is coarse. Whole warp.
  FA3_DEV bool sees_coarse_rows(const BwdWork& work) const {
    float any = 0;
    for (i32 h = 0; h < args.group_size; ++h) {
      const i64 first = args.tiles.first(work.batch, work.head_kv * args.group_size + h,
                                         work.q.begin, kCfg.tile_q);
      const i32 lane = static_cast<i32>(ptx::lane_index());
      for (i32 tile = work.range.first + lane; tile < work.range.end; tile += 32)
        any = ptx::max(any, ptx::ld_global(args.coarse.tiles + first + tile));
    }
    return ptx::any(any != 0);
  }

  // The Q tiles of all the group's heads, one sequence of steps.
  template <bool kCoarse>
  FA3_DEV void attend(i32 left) {
    smem.k_full.wait(0);
    smem.v_full.wait(0);
    if constexpr (kCfg.staggered()) {
      if (wg == 1) both(kStartBar).sync();  // sim:spare(late)
      step<true, kCoarse>();
      FA3_NO_UNROLL
      for (--left; left > 0; --left) step<false, kCoarse>();
      finish();
    } else {
      do {
        step<true, kCoarse>();
      } while (kCfg.lists() ? !this->last : --left > 0);
    }
  }

  FA3_DEV void issue_dp(const ptx::AFrag& ones, Scores& dp) {
    smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
    Parts::issue_dp(dout_ring, ones, dp);
  }

  // staggered(): a step makes dQ of the tile before, and kFirst none; else of its own.
  template <bool kFirst, bool kCoarse>
  FA3_DEV void step() {
    constexpr bool kBehind = kCfg.staggered(), kDqDue = !kBehind || !kFirst;
    const bool leader = thread == 0;
    // Every step anew, so that the compiler keeps no descriptors of K and V over the loop: they are
    // more than the registers that are left.
    base = ptx::shfl_idx(base, 0);
    if constexpr (kTight) this->thread_anew();
    Scores s, ds;
    ptx::AFrag ones;
    set_ones(ones);
    smem.q_full[q_ring.stage].wait(q_ring.phase);
    this->begin_tile();
    const float flag = this->template coarse_flag<kCoarse>(q_ring.stage);
    this->issue_s(q_ring, ones, s);
    if constexpr (!kDpLate) issue_dp(ones, ds);
    gemm_wait<kDpLate ? 0 : 1>(s);
    this->template make_tile_p<kCoarse>(flag, q_ring.stage, s,
                                        [this](int j) { return this->mask_part(j); });
    if constexpr (kBehind && kFirst)
      if (wg == 0) both(kStartBar).arrive();
    if constexpr (kDpLate) issue_dp(ones, ds);
    Fragment p, a;
    to_operand16<kType>(p, s);
    gemm_wait<0>(ds);
    this->make_ds(q_ring.stage, s, ds);
    const QRing before = q_ring.before();
    const QRing& q_due = kBehind && !kFirst ? before : q_ring;
    const typename Parts::Two scales = this->load_scales(q_due);
    to_operand16<kType>(a, ds);
    if constexpr (kBehind) smem.ds_empty[ds_ring.stage].wait(ds_ring.phase ^ 1);
    this->put_ds(ds_ring, ds);
    // dV in halves: one covers the way of dS, the other that of dQ.
    constexpr int kSteps = kCfg.tile_q / 16, kHalf = kSteps / 2;
    const auto dout = this->template columns<kDout>(smem.dout, dout_ring);
    gemm_rs_steps<kType, 0, kHalf>(dv, p, dout, kAccumulate);  // sim:spare(group)
    ptx::fence_proxy_async_shared();
    hand_over_ds();
    DqAcc dq;
    if constexpr (kDqDue) issue_dq(dq);
    ds_ring.advance();
    gemm_rs_steps<kType, kHalf, kSteps>(dv, p, dout, kAccumulate);  // sim:spare(fenced)
    if constexpr (kTight) this->thread_anew();
    [[maybe_unused]] u32 dq_bits = 0;
    if constexpr (kDqDue) {
      dq_empty(wg).sync();
      gemm_wait<1>(dq);
      // Of two slots the next dS takes that of the dS before.
      if constexpr (kBehind) smem.ds_empty[ds_ring.stage].arrive_if(leader);
      dq_bits = this->put_dq(scales, dq, wg);
    }
    const auto q = this->template columns<kQ>(smem.q, q_ring);
    gemm_rs<kType>(dk, a, q, kAccumulate);                // sim:spare(fenced)
    if constexpr (kDqDue) this->release_dq(dq_bits, wg);  // behind dK, which covers its time
    gemm_wait<1>(dv);
    smem.dout_empty[dout_ring.stage].arrive_if(leader);
    dout_ring.advance();
    this->next_tile();
    gemm_wait<0>(dk);
    smem.q_empty[q_ring.stage].arrive_if(leader);
    q_ring.advance();
  }

  FA3_DEV static NamedBarrier both(u32 id) { return {id, kWgThreads * kCfg.consumer_wgs}; }
  // dS of this consumer's keys, stored and fenced, to both.
  FA3_DEV void hand_over_ds() const {
    if constexpr (kCfg.staggered()) {
      ptx::warp_sync();
      smem.ds_full[ds_ring.stage][wg].arrive_if(ptx::lane_index() == 0);
    } else {
      // Both consumers' is there. That it may be overwritten in the next step but one follows: the
      // other consumer comes here again with its dQ complete.
      both(kDsBar).sync();
    }
  }
  FA3_DEV void issue_dq(DqAcc& dq) {
    if constexpr (kCfg.staggered()) {
      const DsRing due = ds_ring.before();
      for (Barrier& full : smem.ds_full[due.stage]) full.wait(due.phase);
      Parts::issue_dq(due, dq);
    } else {
      Parts::issue_dq(ds_ring, dq);
    }
  }

  // dQ of the last tile.
  FA3_DEV void finish() {
    const QRing q_due = q_ring.before();
    DqAcc dq;
    issue_dq(dq);
    const typename Parts::Two scales = this->load_scales(q_due);
    dq_empty(wg).sync();
    gemm_wait<0>(dq);
    this->release_dq(this->put_dq(scales, dq, wg), wg);
  }
};

}  // namespace fa3::sm90
