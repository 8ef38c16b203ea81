// SPDX-License-Identifier: BSD-3-Clause
// three_stage.h — the paper's three-stage variant: a tile's softmax overlaps Q·Kᵀ of the next tile
// and P·V of the previous one. The second S costs tile_kv / 2 registers.
#pragma once

#include "device/attn/kinds.h"
#include "device/attn/tile_range.h"
#include "device/hopper/gemm.h"
#include "device/sm90/fwd/mask.h"
#include "device/types.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

struct ThreeStage {
  template <class Consumer>
  FA3_DEV void attend(Consumer& c) {
    c.first_step(c.visit.own.end - 1);
    others(c);
    c.release_q();
    c.last_pv();
  }

 private:
  // All KV tiles from the second on.
  template <class Consumer>
  FA3_DEV static void others(Consumer& c) {
    constexpr MaskKind kMask = Consumer::kConfig.mask.kind;
    const TileRange& own = c.visit.own;
    const i32 last = own.first;
    i32 kv_tile = own.end - 2;
    if (kv_tile < last) return;
    c.smem.k_full[c.k.stage].wait(c.k.phase);
    c.issue_qk(c.scores.acc);
    gemm_wait<0>(c.scores.acc);
    c.release_k();
    typename Consumer::Scores::Acc ahead;
    if constexpr (kMask != MaskKind::kFull)
      kv_tile = steps<true>(c, ahead, kv_tile, max(own.unmasked_end, last + 1));
    kv_tile = steps<false>(c, ahead, kv_tile, max(own.unmasked_first, last + 1));
    if constexpr (has_left_edge(kMask)) kv_tile = steps<true>(c, ahead, kv_tile, last + 1);
    step<kMask != MaskKind::kFull, true>(c, kv_tile, c.scores.acc, ahead);
  }

  // From kv_tile down to `end`, two at a time since S changes places.
  template <bool kMasked, class Consumer, class S>
  FA3_DEV static i32 steps(Consumer& c, S& ahead, i32 kv_tile, i32 end) {
    FA3_NO_UNROLL
    for (; kv_tile > end; kv_tile -= 2) {
      step<kMasked>(c, kv_tile, c.scores.acc, ahead);
      step<kMasked>(c, kv_tile - 1, ahead, c.scores.acc);
    }
    if (kv_tile == end) {
      step<kMasked>(c, kv_tile, c.scores.acc, ahead);
      FA3_UNROLL
      for (int i = 0; i < Consumer::kConfig.tile.kv / 2; ++i)
        c.scores.acc[i] = static_cast<float>(ahead[i]);
      --kv_tile;
    }
    return kv_tile;
  }

  // S of this KV tile is complete in `s`; that of the next one goes to `ahead`.
  template <bool kMasked, bool kLast = false, class Consumer, class S>
  FA3_DEV static void step(Consumer& c, i32 kv_tile, S& s, S& ahead) {
    if constexpr (!kLast) {
      c.smem.k_full[c.k.stage].wait(c.k.phase);
      c.turn.wait();
      c.issue_qk(ahead);
    }
    c.pv.issue(c);
    if constexpr (!kLast) c.turn.pass();
    c.rescale = c.softmax_tile(kv_tile, s, s, Masked<kMasked>{});
    const auto next = c.v.next();
    c.smem.v_full[next.stage].wait(next.phase);
    gemm_wait<0>(c.pv.o);
    if constexpr (!kLast) {
      ptx::fence_regs(ahead);
      c.release_k();
    }
    c.release_v();
    c.pv.round(c.pv.operand, s);
    c.pv.rescale(c.rescale);
  }
};

}  // namespace fa3::sm90
