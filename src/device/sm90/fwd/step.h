// SPDX-License-Identifier: BSD-3-Clause
// step.h — what a consumer does with a KV tile: S = Q·Kᵀ, softmax, O += P·V, the GEMMs overlapped
// with the softmax. ptxas keeps the order of a step only as it is written here; the compile tests
// check it in the machine code (docs/guide/fwd_schedule.md says why each line stands where it
// does).
#pragma once

#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/sm90/fwd/consumer.h"

namespace fa3::sm90 {

template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::issue_qk(SAcc& s) {
  gemm_ss<kType, kCfg.head_dim_qk / 16>(
      s, q_tiles.after(tile.q_slot * static_cast<u32>(kCfg.q_tile().bytes())),
      k_tiles.after(k.stage * static_cast<u32>(kCfg.k_tile().bytes())), kOverwrite);
}

template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::issue_pv() {
  gemm_rs<kType>(o_acc, p_frag, v_tiles.after(v.stage * static_cast<u32>(kCfg.v_tile().bytes())),
                 kAccumulate);
}

// Q·Kᵀ becomes S: score function, functors and mask.
template <FwdConfig kCfg, class Order, class Score, class Mask>
template <bool kMasked>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::apply_score(i32 kv_tile, SAcc& s) {
  ScoreFunction<kCfg.score>{args.score_factor}.apply(s);
  if constexpr (Score::kActive) apply_scores<Score>(s, score_rows, kCfg.tile_kv * kv_tile);
  if constexpr (kMasked) band.template apply<kCfg.mask == MaskKind::kWindow>(s, kv_tile);
  if constexpr (Mask::kActive) {
    if constexpr (kMasked) {
      const ElementPlace place = place_of(args, smem.work[tile.work_slot].read());
      hide_keys<Mask>(s, mask_rows, band, args.elements, place, kv_tile, seen);
    } else {
      seen = 3;
    }
  }
}

// S becomes P, unnormalised, in FP32.
template <FwdConfig kCfg, class Order, class Score, class Mask>
template <bool kMasked>
FA3_DEV RowScale Consumer<kCfg, Order, Score, Mask>::softmax_tile(i32 kv_tile, SAcc& s) {
  apply_score<kMasked>(kv_tile, s);
  return tile.softmax.template update<kCfg.softmax>(s, args.scale_log2);
}

// The Q tile's first KV tile: there is no P·V yet that its S could overlap with.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::first_step(i32 kv_tile) {
  smem.k_full[k.stage].wait(k.phase);
  issue_qk(s_acc);
  gemm_wait<0>(s_acc);  // S readable, K's stage reusable
  release_k();
  apply_score<true>(kv_tile, s_acc);  // the tail: keys beyond the sequence
  tile.softmax.template start<kCfg.softmax>(s_acc, args.scale_log2);
  to_operand16<kType>(p_frag, s_acc);
  rescale = {{1.f, 1.f}, false};  // O is 0
  smem.v_full[v.stage].wait(v.phase);
}

// Softmax of this KV tile overlaps O += P·V of the previous one: P lags S by a tile.
template <FwdConfig kCfg, class Order, class Score, class Mask>
template <bool kMasked>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::step(i32 kv_tile) {
  smem.k_full[k.stage].wait(k.phase);  // V of the previous tile was waited for one step ago
  turn.wait();                         // ping-pong: our slot on the tensor cores
  issue_qk(s_acc);
  issue_pv();
  turn.pass();
  gemm_wait<1>(s_acc);  // S readable, K's stage reusable; P·V still in flight
  release_k();
  rescale = softmax_tile<kMasked>(kv_tile, s_acc);  // s_acc holds P now, in FP32
  const Ring<kCfg.stages> next = v.next();
  // V of this tile, needed one step from now: ptxas cannot move the next line past this loop, so
  // not above the exponentials, with which P·V overlaps.
  smem.v_full[next.stage].wait(next.phase);
  gemm_wait<0>(o_acc);  // O and p_frag writable, V's stage reusable
  release_v();
  to_operand16<kType>(p_frag, s_acc);
  rescale_rows<kCfg.softmax>(o_acc, rescale);  // O in units of the new maximum
}

template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::last_pv() {
  issue_pv();
  look_ahead();           // overlapped with the GEMM,
  tile.softmax.finish();  // as the row sums
  gemm_wait<0>(o_acc);
  release_v();
}

}  // namespace fa3::sm90
