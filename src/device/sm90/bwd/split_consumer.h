// SPDX-License-Identifier: BSD-3-Clause
// split_consumer.h — the backward's consumers for head dims above 128, where dK and dV of 64 keys
// fill the registers of a warpgroup each: the first makes P and dV, the second dS and dK; of dQ
// each makes half of the columns. P goes from one to the other through shared memory, in FP32 and
// the order of registers, which are the same queries and keys in both.
#pragma once

#include "device/ptx/reduce.h"
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
  i32 place = 0;                   // of dQ's tile, from the group's first head on
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
    if (!work.range.empty()) {
      i32 left = this->start(work);
      place = tile;
      float* const sums = first_sums(work);
      smem.kv_full.wait(0);
      FA3_NO_UNROLL
      for (; left > 0; --left) {
        if constexpr (kDv)
          step_dv(sums);
        else
          step_dk(sums);
      }
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

  FA3_DEV void step_dv(float* sums) {
    const bool leader = thread == 0;
    base = ptx::shfl_idx(base, 0);  // as in consumer.h
    Scores s;
    Fragment p;
    smem.q_full[q_ring.stage].wait(q_ring.phase);
    this->issue_s(q_ring, s);
    gemm_wait<0>(s);
    this->make_p(q_ring.stage, s, p);
    // The other consumer has read the P before: its dS, of that, has been waited for.
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j)
      ptx::st_shared(&smem.p[j][thread], {{s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]}});
    ptx::fence_proxy_async_shared();  // LSE has been read, which the next tile's overwrites
    ptx::warp_sync();
    smem.p_full.arrive_if(ptx::lane_index() == 0);
    smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
    gemm_rs<kType>(sum, p, this->template columns<kDout>(smem.dout, dout_ring), kAccumulate);
    DqAcc dq;
    smem.ds_full[ds_ring.stage][0].wait(ds_ring.phase);
    this->issue_dq(ds_ring, dq);
    // dS is there, so all threads here had made P.
    smem.q_empty[q_ring.stage].arrive_if(leader);
    gemm_wait<1>(sum);
    smem.dout_empty[dout_ring.stage].arrive_if(leader);
    finish_step(sums, dq);
  }

  FA3_DEV void step_dk(float* sums) {
    const bool leader = thread == 0;
    base = ptx::shfl_idx(base, 0);
    Scores s, ds;
    Fragment p;
    smem.dout_full[dout_ring.stage].wait(dout_ring.phase);
    this->issue_dp(dout_ring, ds);
    smem.q_full[q_ring.stage].wait(q_ring.phase);  // sim:spare(seen)
    smem.p_full.wait(p_phase);
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) {
      const ptx::Vec<float, 4> four = ptx::ld_shared(&smem.p[j][thread]);
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) s[4 * j + i] = four[i];
    }
    gemm_wait<0>(ds);
    smem.dout_empty[dout_ring.stage].arrive_if(leader);
    this->make_ds(q_ring.stage, s, p, ds);
    to_operand16<kType>(p, ds);
    smem.ds_empty[ds_ring.stage].wait(ds_ring.phase ^ 1);
    this->store_ds(ds_ring, ds);
    gemm_rs<kType>(sum, p, this->template columns<kQ>(smem.q, q_ring), kAccumulate);
    DqAcc dq;
    smem.ds_full[ds_ring.stage][0].wait(ds_ring.phase);
    this->issue_dq(ds_ring, dq);
    gemm_wait<1>(sum);
    smem.q_empty[q_ring.stage].arrive_if(leader);
    finish_step(sums, dq);
  }

  // dq: the first piece, under way.
  FA3_DEV void finish_step(float* sums, DqAcc& dq) {
    gemm_wait<0>(dq);
    add_dq(sums, dq, 0);
    FA3_UNROLL
    for (int piece = 1; piece < Parts::kDqPieces; ++piece) {
      this->issue_dq(ds_ring, dq, static_cast<u32>(piece));
      gemm_wait<0>(dq);
      add_dq(sums, dq, piece);
    }
    smem.ds_empty[ds_ring.stage].arrive_if(thread == 0);
    this->next_tile();
    advance_place();
    q_ring.advance();
    dout_ring.advance();
    ds_ring.advance();
    p_phase ^= 1;
  }

  // This thread's share of dQ's sums for the first tile of the group's first head.
  FA3_DEV float* first_sums(const BwdWork& work) const {
    const i64 first =
        args.tiles.first(work.batch, work.head_kv * args.group_size, work.q.begin, kQueries);
    return args.dq_sum + first * kCfg.dq_floats() + wg * (kWgRows * kCfg.dq_columns()) + 4 * thread;
  }
  // To the next tile, which begins a head or follows.
  FA3_DEV void advance_place() {
    const ptx::Vec<i32, 4> of = this->load_range();
    place += tile == of[0] ? static_cast<i32>(args.tiles.head) - (of[3] - of[0]) + 1 : 1;
  }
  // Registers 4g … 4g + 3 of all threads lie side by side.
  FA3_DEV void add_dq(float* sums, const DqAcc& dq, int piece) const {
    constexpr int kPiece = kWgThreads * Parts::kDqColumns / 2;
    float* const to = sums + i64{place} * kCfg.dq_floats() + piece * kPiece;
    FA3_UNROLL
    for (int g = 0; g < Parts::kDqColumns / 8; ++g) {
      ptx::red_add_v4_f32(to + 4 * kWgThreads * g,
                          {{dq[4 * g], dq[4 * g + 1], dq[4 * g + 2], dq[4 * g + 3]}});
    }
  }
};

}  // namespace fa3::sm90
