// SPDX-License-Identifier: BSD-3-Clause
// split_consumer.h — the backward's consumers for head dims above 128, where dK and dV of 64 keys
// fill the registers of a warpgroup each: the first makes P and dV, the second dS and dK; of dQ
// each makes half of the columns. P goes from one to the other through shared memory, in FP32 and
// the order of registers, which are the same queries and keys in both.
#pragma once

#include "device/sm90/bwd/parts.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct BwdSplitConsumer : BwdParts<kCfg> {
  using Parts = BwdParts<kCfg>;
  using Parts::args, Parts::base, Parts::smem, Parts::thread, Parts::tile, Parts::wg;
  using Parts::kQueries, Parts::kType, Parts::kK, Parts::kV, Parts::kQ, Parts::kDout;
  using typename Parts::DqAcc, typename Parts::Fragment, typename Parts::Scores;
  using typename Parts::QRing, typename Parts::DoutRing, typename Parts::DsRing;
  static_assert(kCfg.head_dim_qk == kCfg.head_dim_v, "one accumulator for dV or dK");

  QRing q_ring;
  DoutRing dout_ring;
  DsRing ds_ring;
  u32 p_phase = 0;
  typename Parts::Two scales;      // of dQ's rows
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
    sum.zero();
    if (this->has_tiles(work)) {
      i32 left = this->start(work);
      smem.k_full.wait(0);
      if constexpr (!kDv) smem.v_full.wait(0);
      FA3_NO_UNROLL
      do {
        if constexpr (kDv)
          step_dv();
        else
          step_dk();
      } while (kCfg.lists() ? !this->last : --left > 0);
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

  FA3_DEV void step_dv() {
    const bool leader = thread == 0;
    base = ptx::shfl_idx(base, 0);  // as in consumer.h
    Scores s;
    Fragment p;
    smem.q_full[q_ring.stage].wait(q_ring.phase);
    this->begin_tile();
    this->issue_s(q_ring, s);
    gemm_wait<0>(s);
    this->make_p(q_ring.stage, this->stats(q_ring.stage, 0), s, p);
    scales = this->load_scales(q_ring);
    // The other consumer has read the P before: its dS, of that, has been waited for.
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j)
      ptx::st_shared(&smem.p[j][thread], {{s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]}});
    ptx::fence_proxy_async_shared();  // LSE has been read, which the next tile's overwrites
    ptx::warp_sync();
    smem.p_full.arrive_if(ptx::lane_index() == 0);
    smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
    gemm_rs<kType>(  // sim:spare(group)
        sum, p, this->template columns<kDout>(smem.dout, dout_ring), kAccumulate);
    DqAcc dq[Parts::kDqPieces];
    smem.ds_full[ds_ring.stage][0].wait(ds_ring.phase);
    issue_dq_pieces(dq);
    // dS is there, so all threads here had made P.
    smem.q_empty[q_ring.stage].arrive_if(leader);
    finish_step(smem.dout[dout_ring.stage], dq);
  }

  FA3_DEV void step_dk() {
    const bool leader = thread == 0;
    base = ptx::shfl_idx(base, 0);
    Scores s, ds;
    Fragment p;
    smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
    this->issue_dp(dout_ring, ds);
    smem.q_full[q_ring.stage].wait(q_ring.phase);  // sim:spare(seen)
    this->begin_tile();
    smem.p_full.wait(p_phase);
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) {
      const ptx::Vec<float, 4> four = ptx::ld_shared(&smem.p[j][thread]);
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) s[4 * j + i] = four[i];
    }
    gemm_wait<0>(ds);
    smem.dout_empty[dout_ring.stage].arrive_if(leader);
    this->make_ds(q_ring.stage, this->stats(q_ring.stage, 1), s, p, ds);
    scales = this->load_scales(q_ring);
    to_operand16<kType>(p, ds);
    smem.ds_empty[ds_ring.stage].wait(ds_ring.phase ^ 1);
    this->put_ds(ds_ring, ds);
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    smem.ds_full[ds_ring.stage][0].arrive_if(ptx::lane_index() == 0);
    gemm_rs<kType>(  // sim:spare(group)
        sum, p, this->template columns<kQ>(smem.q, q_ring), kAccumulate);
    DqAcc dq[Parts::kDqPieces];
    smem.ds_full[ds_ring.stage][0].wait(ds_ring.phase);
    issue_dq_pieces(dq);
    finish_step(smem.q[q_ring.stage], dq);
  }

  FA3_DEV void issue_dq_pieces(DqAcc (&dq)[Parts::kDqPieces]) {
    FA3_UNROLL
    for (u32 piece = 0; piece < Parts::kDqPieces; ++piece)
      this->issue_dq(ds_ring, dq[piece], piece);
  }

  // dq: under way. It leaves by way of a tile that has had its last GEMM: dV's consumer takes dO,
  // dK's takes Q, which the dQ writer releases for them.
  FA3_DEV void finish_step(u8* tile, DqAcc (&dq)[Parts::kDqPieces]) {
    static_assert(Parts::kDqPieces == 2, "one wait for each");
    dq_empty(wg).sync();
    gemm_wait<1>(dq[0]);
    ptx::fence_regs(sum);  // its GEMM came before
    put_piece(tile, dq[0], 0);
    gemm_wait<0>(dq[1]);
    put_piece(tile, dq[1], 1);
    smem.ds_empty[ds_ring.stage].arrive_if(thread == 0);
    this->next_tile();
    q_ring.advance();
    dout_ring.advance();
    ds_ring.advance();
    p_phase ^= 1;
  }
  FA3_DEV void put_piece(u8* tile, DqAcc& dq, int piece) const {
    this->put_dq(reinterpret_cast<u32*>(tile) + piece * Parts::kDqPiece, q_ring, scales, dq, piece);
    this->release_dq(piece);
  }
};

}  // namespace fa3::sm90
