// SPDX-License-Identifier: BSD-3-Clause
// step.h — what a consumer does with a KV tile: S = Q·Kᵀ, softmax, O += P·V, the GEMMs overlapped
// with the softmax. ptxas keeps the order of a step only as it is written here; the compile tests
// check it in the machine code (docs/guide/fwd_schedule.md says why each line stands where it
// does).
#pragma once

#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/ptx/grid.h"
#include "device/ptx/warp.h"
#include "device/sm90/fwd/consumer.h"

namespace fa3::sm90 {

template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::issue_qk(SAcc& s) {
  gemm_ss<kCfg.dtype_qk, kCfg.head_dim_qk / kCfg.qk_step()>(
      s, q_tiles.after(tile.q_slot * static_cast<u32>(kCfg.q_tile().bytes())),
      k_tiles.after(k.stage * static_cast<u32>(kCfg.k_tile().bytes())), kOverwrite);
}

template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::issue_pv() {
  if constexpr (kCfg.flush_columns > 0) return issue_part(part, 0);
  gemm_rs<kCfg.dtype_v>(o_acc, p_frag, v_tiles.after(v.stage * static_cast<u32>(kCfg.v_bytes())),
                        kAccumulate);
}

// The columns from `column` on.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::issue_part(Part& to, int column) {
  const auto v_tile = v_tiles.after(v.stage * static_cast<u32>(kCfg.v_bytes()));
  gemm_rs<kCfg.dtype_v>(to, p_frag, v_tile.from_row(static_cast<u32>(column)), kOverwrite);
}

template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::add_part(const Part& from, int column) {
  FA3_UNROLL
  for (int i = 0; i < kCfg.flush_columns / 2; ++i) {
    float& o = o_acc[column / 2 + i];
    if constexpr (kCfg.block_scales()) {
      o = ptx::fma(from[i], scales.v[i / 2 % 2], o);
    } else {
      o += from[i];
    }
  }
}

// O and p_frag writable, V's stage reusable.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::finish_pv() {
  constexpr int kColumns = kCfg.flush_columns;
  if constexpr (kColumns == 0) {
    gemm_wait<0>(o_acc);
  } else if constexpr (kCfg.pairs_parts()) {
    Part other;
    FA3_UNROLL
    for (int column = 0; column < kCfg.head_dim_v; column += 2 * kColumns) {
      issue_part(other, column + kColumns);
      gemm_wait<1>(part);
      add_part(part, column);
      const bool more = column + 2 * kColumns < kCfg.head_dim_v;
      if (more) {
        issue_part(part, column + 2 * kColumns);
        gemm_wait<1>(other);
      } else {
        gemm_wait<0>(other);
      }
      add_part(other, column + kColumns);
    }
  } else {
    FA3_UNROLL
    for (int column = 0; column < kCfg.head_dim_v; column += kColumns) {
      if (column > 0) issue_part(part, column);
      gemm_wait<0>(part);
      add_part(part, column);
    }
  }
  release_v();
}

// S as what follows takes it: integers as they are, or in FP32, exactly.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV auto Consumer<kCfg, Order, Score, Mask>::scores_of(SAcc& s) -> Scores& {
  if constexpr (is_int8(kCfg.dtype_qk) && !kBiased) {
    FA3_UNROLL
    for (int i = 0; i < kCfg.tile_kv / 2; ++i) converted[i] = number_of(s[i]) - kScoreBias;
    return converted;
  } else {
    return s;
  }
}

// Where P takes the place of S.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV auto Consumer<kCfg, Order, Score, Mask>::p_of(SAcc& s) -> PAcc& {
  if constexpr (is_int8(kCfg.dtype_qk)) {
    return converted;
  } else {
    return s;
  }
}

template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::scale_scores(PAcc& s) {
  scales.scale_scores(s);
  if constexpr (kShifts) {
    ScoreFunction<kCfg.score>{score_factor()}.apply(s, tile.shift);
  } else {
    ScoreFunction<kCfg.score>{score_factor()}.apply(s);
  }
}

// Q·Kᵀ becomes S: score function, functors and mask.
template <FwdConfig kCfg, class Order, class Score, class Mask>
template <bool kMasked>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::apply_score(i32 kv_tile, Scores& s) {
  if constexpr (!kBiased) scale_scores(s);
  if constexpr (kCfg.adds_mask() && kCfg.score == ScoreKind::kSoftcap) {
    FA3_UNROLL
    for (int i = 0; i < kCfg.tile_kv / 2; ++i) s[i] *= args.mask.cap;  // in natural units
  }
  if constexpr (Score::kActive) apply_scores<Score>(s, score_rows, kCfg.tile_kv * kv_tile);
  if constexpr (kCfg.has_mask()) return apply_mask<kMasked>(kv_tile, s);
  if constexpr (kMasked) band.template apply<kCfg.mask == MaskKind::kWindow>(s, kv_tile);
  if constexpr (Mask::kActive) {
    if constexpr (kMasked) {
      const ElementPlace place = place_of(args, smem.work[tile.work_slot].read());
      const auto shown = [&](int h, int column) {
        return band.sees(h, column, kCfg.tile_kv * kv_tile);
      };
      hide_keys<Mask>(s, mask_rows, shown, args.elements, place, kv_tile, seen);
    } else {
      seen = 3;
    }
  }
}

// What attn_mask adds, also to keys that are not seen.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::add_mask(i32 kv_tile, Scores& s) {
  using Element = MaskElement<kCfg.attn_mask, kCfg.dtype_qk == MmaType::kBf16>;
  if constexpr (kCfg.mask_stages > 0) {
    if (args.mask.by_tma) {
      const u32 at = added.stage * kCfg.consumer_wgs + wg;
      smem.mask_full[at].wait(added.phase);
      add_mask_tile<Element, kCfg.mask_tile()>(s, smem.side[at], ptx::thread_index() % kWgThreads);
      ptx::fence_proxy_async_shared();  // before TMA writes there again
      ptx::warp_sync();                 // all lanes have read
      smem.mask_empty[at].arrive_if(ptx::lane_index() == 0);
      return added.advance();
    }
  }
  const FwdWork work = smem.work[tile.work_slot].read();
  add_mask_elements<Element>(s, args.mask, work.batch, work.head, row_of(work),
                             max(work.q_used - 1, 0), kv_tile);
}

// What attn_mask does to a tile, before its S is waited for: loads of bits take long.
template <FwdConfig kCfg, class Order, class Score, class Mask>
template <bool kMasked>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::begin_mask(i32 kv_tile) {
  if constexpr (kCfg.has_mask() && kMasked) {
    hides = true;
    bool adds = false;
    if constexpr (kCfg.adds_mask()) {
      adds = tiles.adds(kv_tile);
      // Of the mask first: its reduction has to stand behind no condition (ShownTiles).
      const bool by_mask = tiles.hides(kv_tile);
      if constexpr (!Mask::kActive)
        hides = by_mask || kv_tile < visit.own.unmasked_first || kv_tile >= visit.own.unmasked_end;
    }
    if (hides && !adds) load_keys(kv_tile);
  }
}

// Bits of the tile, into which the band is put.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::load_keys(i32 kv_tile) {
  const FwdWork work = smem.work[tile.work_slot].read();
  keys.load(args.mask, work.batch, work.head, row_of(work), max(work.q_used - 1, 0), kv_tile,
            band_of(work));
}

template <FwdConfig kCfg, class Order, class Score, class Mask>
template <bool kMasked>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::apply_mask(i32 kv_tile, Scores& s) {
  if constexpr (!kMasked) {
    seen = 3;
  } else {
    if constexpr (kCfg.adds_mask()) {
      if (tiles.adds(kv_tile)) {
        add_mask(kv_tile, s);
        // Not before: there are no registers for both.
        if (hides) load_keys(kv_tile);
      }
      if (!hides) {
        seen = 3;
        return;
      }
    }
    keys.apply(s);
    if constexpr (Mask::kActive) {
      const auto shown = [&](int h, int column) { return keys.sees(h, column); };
      const ElementPlace place = place_of(args, smem.work[tile.work_slot].read());
      hide_keys<Mask>(s, mask_rows, shown, args.elements, place, kv_tile, seen);
    } else {
      seen |= (keys.sees_any(0) ? 1u : 0u) | (keys.sees_any(1) ? 2u : 0u);
    }
  }
}

// S becomes P, unnormalised, in FP32.
template <FwdConfig kCfg, class Order, class Score, class Mask>
template <bool kMasked>
FA3_DEV RowScale Consumer<kCfg, Order, Score, Mask>::softmax_tile(i32 kv_tile, Scores& s, PAcc& p) {
  apply_score<kMasked>(kv_tile, s);
  return tile.softmax.update(s, p, scale_log2());
}

// P becomes an operand. In 8 bits a tile's keys are then in another order, that of V transposed.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::round_p(PFrag& to, const PAcc& p) {
  if constexpr (kCfg.v8()) {
    to_operand8_permuted<kCfg.dtype_v>(to, p);
  } else {
    to_operand16<kCfg.dtype_v>(to, p);
  }
}

// The Q tile's first KV tile: there is no P·V yet that its S could overlap with.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::first_step(i32 kv_tile) {
  scales.load(args);
  smem.k_full[k.stage].wait(k.phase);
  issue_qk(s_acc);
  begin_mask<true>(kv_tile);
  gemm_wait<0>(s_acc);  // S readable, K's stage reusable
  release_k();
  Scores& s = scores_of(s_acc);
  PAcc& p = p_of(s_acc);
  apply_score<true>(kv_tile, s);  // the tail: keys beyond the sequence
  tile.softmax.start(s, p, scale_log2());
  scales.scale_p(p);
  round_p(p_frag, p);
  rescale = {{1.f, 1.f}, false};  // O is 0
  smem.v_full[v.stage].wait(v.phase);
  if (kWaitsAhead && kv_tile > visit.own.first) smem.k_full[k.stage].wait(k.phase);
}

// V of this tile, needed one step from now, and with kWaitsAhead K of the tile below.
template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::wait_ahead(i32 kv_tile) {
  const Ring<kCfg.stages> next = v.next();
  if constexpr (!kWaitsAhead) return smem.v_full[next.stage].wait(next.phase);
  // Both answers for one branch. There may be no K that comes: without waiting for it.
  const bool k_due = kv_tile > visit.own.first;
  const bool has_k = smem.k_full[k.stage].test_wait(k.phase);
  const bool has_v = smem.v_full[next.stage].try_wait(next.phase);
  if (static_cast<bool>(has_v & (has_k | !k_due))) return;
  smem.v_full[next.stage].wait(next.phase);
  if (k_due) smem.k_full[k.stage].wait(k.phase);
}

// Softmax of this KV tile overlaps O += P·V of the previous one: P lags S by a tile.
template <FwdConfig kCfg, class Order, class Score, class Mask>
template <bool kMasked>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::step(i32 kv_tile) {
  scales.load(args);
  // V of the previous tile was waited for one step ago.
  if constexpr (!kWaitsAhead) smem.k_full[k.stage].wait(k.phase);
  turn.wait();  // ping-pong: our slot on the tensor cores
  issue_qk(s_acc);
  issue_pv();
  turn.pass();
  begin_mask<kMasked>(kv_tile);
  gemm_wait<1>(s_acc);  // S readable, K's stage reusable; P·V still in flight
  release_k();
  PAcc& p = p_of(s_acc);
  rescale = softmax_tile<kMasked>(kv_tile, scores_of(s_acc), p);  // p holds P now, in FP32
  // ptxas cannot move the wait for P·V past the loop in here, so not above the exponentials, with
  // which P·V overlaps.
  wait_ahead(kv_tile);
  // Nor the exponentials below a branch on their sums, where the loop does not hold them.
  constexpr bool kLoopHolds = !is_int8(kCfg.dtype_qk) && kCfg.flush_columns == 0;
  if (!kLoopHolds && ptx::any(!tile.softmax.begun())) ptx::nanosleep(0);
  if constexpr (kCfg.pairs_parts()) {
    PFrag rounded;
    round_p(rounded, p);
    finish_pv();
    FA3_UNROLL
    for (int i = 0; i < kCfg.tile_kv / kCfg.pv_step(); ++i) p_frag[i] = rounded[i];
  } else {
    finish_pv();
    scales.scale_p(p);
    round_p(p_frag, p);
  }
  rescale_rows<kCfg.softmax>(o_acc, rescale);  // O in units of the new maximum
  if constexpr (kCfg.park_tiles > 0)
    if (rescale.needed) parked.rescale(rescale);
}

template <FwdConfig kCfg, class Order, class Score, class Mask>
FA3_DEV void Consumer<kCfg, Order, Score, Mask>::last_pv() {
  issue_pv();
  look_ahead();           // overlapped with the GEMM,
  tile.softmax.finish();  // as the row sums
  finish_pv();
  if constexpr (kCfg.park_tiles > 0) parked.finish(smem.side[wg], o_acc);
}

}  // namespace fa3::sm90
