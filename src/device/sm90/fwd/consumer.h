// SPDX-License-Identifier: BSD-3-Clause
// consumer.h — one of the forward kernel's consumer warpgroups: its state, and which KV tiles of a
// Q tile it visits with the mask, without, and not at all. What it does with a KV tile is in
// step.h, how O leaves in epilogue.h.
#pragma once

#include "device/hopper/gemm.h"
#include "device/hopper/ring.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/bulk.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/parked.h"
#include "device/sm90/fwd/scales.h"
#include "device/sm90/fwd/smem.h"
#include "device/warp/element.h"
#include "device/warp/fragment.h"
#include "device/warp/mask_tensor.h"
#include "device/warp/mask_tile.h"
#include "device/warp/score.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// Ping-pong: consumer w issues its GEMMs when consumer w − 1 has issued its own.
template <FwdConfig kCfg>
struct Turn {
  u32 wg;

  FA3_DEV void start() const {  // once: as if the last consumer had passed to the first
    if (kCfg.ping_pong && wg == kCfg.consumer_wgs - 1) pass();
  }
  FA3_DEV void wait() const {
    if constexpr (kCfg.ping_pong) NamedBarrier{kTurnBar + wg, 2 * kWgThreads}.sync();
  }
  FA3_DEV void pass() const {
    if constexpr (kCfg.ping_pong) {
      const u32 next = wg + 1 == kCfg.consumer_wgs ? 0 : wg + 1;
      NamedBarrier{kTurnBar + next, 2 * kWgThreads}.arrive();
    }
  }
};

// A Q tile while a consumer works on it. What the loop does not need is read again in the epilogue.
template <FwdConfig kCfg, bool kBiased>
struct QTileState {
  u32 work_slot;  // of FwdSmem::work
  u32 q_slot;     // of FwdSmem::q, q_full and q_empty
  RowSoftmax<kCfg.softmax, kBiased> softmax;
  PerRow factor;  // 8 bits: score_factor or scale_log2 of FwdArgs, times the scales of Q and K
  PerRow shift;   // 8 bits with a softcap: what is added to scores before it
};

// V as the GEMM's operand: as TMA has loaded it, or transposed.
template <FwdConfig kCfg>
struct VTile {
  using Operand = MnMajorOperand<kCfg.v_tile()>;
};
template <FwdConfig kCfg>
requires(kCfg.v8()) struct VTile<kCfg> {
  using Operand =
      KMajorTile<kCfg.turned_v().swizzle(), static_cast<u32>(kCfg.turned_v().panel_bytes())>;
};

// The KV tiles of a Q tile: those that this consumer's rows see, and those that any rows see.
struct Visit {
  TileRange own;
  i32 first, end;
  bool is_tile;  // else no work is left
};

// Whether the mask is applied to a tile, as a type.
template <bool kMasks>
struct Masked {
  static constexpr bool kMasked = kMasks;
};

// The order of GEMMs and softmax over the KV tiles of a Q tile: the paper's algorithm 2. Others are
// in sm90/ablation.
struct TwoStage {
  template <class Consumer>
  FA3_DEV void attend(Consumer& c) {
    const i32 last = c.visit.own.end - 1;
    c.first_step(last);
    c.template for_kv_tiles<false>(last - 1, [&](i32 kv_tile, auto masked) {
      c.template step<decltype(masked)::kMasked>(kv_tile);
    });
    c.release_q();
    c.last_pv();
  }
};

// Score and Mask: functors of one score (warp/element.h), applied after the score function and the
// band.
template <FwdConfig kCfg, class Order, class Score, class Mask>
struct Consumer {
  static constexpr FwdConfig kConfig = kCfg;
  // Integer scores that nothing but masks and the softmax look at.
  static constexpr bool kBiased =
      is_int8(kCfg.dtype_qk) && kCfg.score == ScoreKind::kPlain && !Score::kActive;
  // What k_offset adds to scores is added to LSE, or where a softcap follows, to the scores.
  static constexpr bool kShifts = kCfg.scaled() && kCfg.score == ScoreKind::kSoftcap;
  static constexpr bool kAddsOffset = kCfg.scaled() && !kShifts;
  // Where P·V is added to O in FP32, K is waited for among the exponentials. Elsewhere that costs
  // more than it gains (docs/tuning/fwd8_sm90.md).
  static constexpr bool kWaitsAhead = kCfg.flush_columns > 0;
  using Smem = FwdSmem<kCfg>;
  using QTile = QTileState<kCfg, kBiased>;
  using QOperand = KMajorOperand<kCfg.q_tile()>;
  using KOperand = KMajorOperand<kCfg.k_tile()>;
  using VOperand = typename VTile<kCfg>::Operand;
  using SAcc = ptx::AccFor<kCfg.dtype_qk, kCfg.tile_kv>;
  using PAcc = ptx::Acc<kCfg.tile_kv>;
  using Scores = ptx::Acc<kCfg.tile_kv, typename ScoreType<kBiased>::Type>;
  using Part = ptx::Acc<max(kCfg.flush_columns, 8)>;
  using PFrag = ptx::AFrag[kCfg.tile_kv / kCfg.pv_step()];

  Smem& smem;
  const FwdArgs& args;
  u32 wg;  // among the consumers
  bool leader;
  Order order;
  Turn<kCfg> turn;
  QOperand q_tiles;  // of stage 0, as the others
  KOperand k_tiles;
  VOperand v_tiles;
  Ring<kCfg.q_stages> q;
  Ring<kCfg.stages> k, v;
  Ring<max(kCfg.mask_stages, 1)> added;  // tiles of attn_mask
  Ring<FwdConfig::kWorkSlots> slots;
  QTile tile;
  Visit visit, next_visit;  // of the current Q tile and the next
  BandMask band;
  typename Score::Row score_rows[2];  // of this thread's two rows, as mask_rows
  typename Mask::Row mask_rows[2];
  u32 seen;  // Mask and attn_mask only: bit h is set when row h has seen a key
  // attn_mask only; of the tile, whether it hides keys, and then which it does not.
  ShownTiles<true> tiles;
  ShownKeys<kCfg.has_mask() ? kCfg.tile_kv : 32> keys;
  bool hides;
  RowScale rescale;  // of O, due before the next GEMM
  SAcc s_acc;
  PAcc converted;  // S of integers: in FP32, and its P; else not used
  ptx::Acc<kCfg.head_dim_v> o_acc;
  ParkedO<kCfg> parked;
  Part part;  // of P·V, before it is added to O; else not used
  PFrag p_frag;
  typename ScalesOf<kCfg>::Type scales;

  FA3_DEV Consumer(Smem& smem, const FwdArgs& args, u32 wg, const Order& order = {})
      : smem(smem),
        args(args),
        wg(wg),
        leader(ptx::thread_index() % kWgThreads == 0),
        order(order),
        turn{wg},
        q_tiles(tile_at<QOperand>(smem.q)),
        k_tiles(tile_at<KOperand>(smem.k)),
        v_tiles(tile_at<VOperand>(smem.v)) {}

  // step.h
  FA3_DEV void issue_qk(SAcc& s);
  FA3_DEV void issue_pv();
  FA3_DEV void issue_part(Part& to, int column);
  FA3_DEV void add_part(const Part& from, int column);
  FA3_DEV void finish_pv();
  FA3_DEV void scale_scores(PAcc& s);
  template <bool kMasked>
  FA3_DEV void apply_score(i32 kv_tile, Scores& s);
  template <bool kMasked>
  FA3_DEV void apply_mask(i32 kv_tile, Scores& s);
  template <bool kMasked>
  FA3_DEV void begin_mask(i32 kv_tile);
  FA3_DEV void load_keys(i32 kv_tile);
  FA3_DEV void add_mask(i32 kv_tile, Scores& s);
  template <bool kMasked>
  FA3_DEV RowScale softmax_tile(i32 kv_tile, Scores& s, PAcc& p);
  FA3_DEV void first_step(i32 kv_tile);
  FA3_DEV void wait_ahead(i32 kv_tile);
  template <bool kMasked>
  FA3_DEV void step(i32 kv_tile);
  FA3_DEV void last_pv();
  FA3_DEV Scores& scores_of(SAcc& s);
  FA3_DEV PAcc& p_of(SAcc& s);
  FA3_DEV void round_p(PFrag& to, const PAcc& p);
  // epilogue.h
  FA3_DEV void store_tile();

  FA3_DEV void run() {
    turn.start();
    FA3_NO_UNROLL
    for (look_ahead(); next_visit.is_tile;) {
      begin();
      attend();
      store_tile();
    }
    // Shared memory is freed when the CTA ends; Q's buffer is waited for at once.
    if (!kCfg.o_in_q && leader) ptx::bulk_wait_read<0>();  // sim:spare(one_tile)
  }

  // Reads the next work. Loop bounds go through reductions, so that the compiler sees
  // one value per warp and keeps rings and descriptors in uniform registers.
  FA3_DEV void look_ahead() {
    smem.work_full[slots.stage].wait(slots.phase);
    const u32 lane = ptx::lane_index();
    // Lanes 0…3: the tiles of this consumer's rows; 4…8: those of all consumers, and the Q tile.
    const FwdSharedWork& work = smem.work[slots.stage];
    const i32 mine =
        ptx::ld_shared(lane < 4 ? &work.wg_range[wg][lane] : &work.word[lane < 8 ? lane - 4 : 4]);
    const auto at = [&](u32 i) {
      return static_cast<i32>(ptx::redux_or(lane == i ? static_cast<u32>(mine) : 0));
    };
    next_visit = {{at(0), at(1), at(2), at(3)}, at(4), at(7), at(8) >= 0};
  }
  FA3_DEV void release_work(u32 slot) {
    ptx::warp_sync();  // all lanes have read  sim:spare(work_read)
    smem.work_empty[slot].arrive_if(ptx::lane_index() == 0);  // sim:spare(one_tile)
  }

  // The first of this thread's two rows, in its sequence.
  FA3_DEV i32 row_of(const FwdWork& work) const {
    return kCfg.tile_q() * work.tile +
           static_cast<i32>(kWgRows * wg + fragment_row(ptx::thread_index() % kWgThreads));
  }
  FA3_DEV BandMask band_of(const FwdWork& work) const {
    const u32 column = fragment_column(ptx::thread_index() % kWgThreads);
    return BandMask::of(args.band, work.q_used, work.kv_used, row_of(work),
                        static_cast<i32>(column));
  }

  // Makes the next work the current tile; waits for its Q.
  FA3_DEV void begin() {
    visit = next_visit;
    tile.work_slot = slots.stage;
    slots.advance();
    tile.q_slot = q.stage * kCfg.consumer_wgs + wg;
    tile.softmax.reset();
    const FwdWork work = smem.work[tile.work_slot].read();
    band = band_of(work);
    begin_functors(work);
    if constexpr (kCfg.scaled()) begin_scales(work);
    smem.q_full[tile.q_slot].wait(q.phase);
    q.advance();
  }

  FA3_DEV void begin_functors([[maybe_unused]] const FwdWork& work) {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      if constexpr (Score::kActive)
        score_rows[h] = Score::row(args.elements, place_of(args, work), row_of(work) + 8 * h);
      if constexpr (Mask::kActive)
        mask_rows[h] = Mask::row(args.elements, place_of(args, work), row_of(work) + 8 * h);
    }
    if constexpr (Mask::kActive || kCfg.has_mask()) seen = 0;
    if constexpr (kCfg.has_mask())
      tiles.begin(args.mask, work.batch, work.head, work.tile, visit.own.end - 1);
  }

  FA3_DEV void begin_scales(const FwdWork& work) {
    if constexpr (kCfg.column_scales()) {
      scales.begin(args, work, row_of(work));
    } else {
      scales.begin(args, work, max(visit.own.end - 1, 0));
    }
    const PerRow scale = code_scale<kCfg>(args, work, row_of(work));
    constexpr bool kPlain = kCfg.score == ScoreKind::kPlain;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      tile.factor.row[h] =
          kPlain ? finite_factor(scale[h] * args.scale_log2) : scale[h] * args.score_factor;
      if constexpr (kShifts) {
        const i32 row = min(row_of(work) + 8 * h, work.q_used - 1);
        tile.shift.row[h] = score_offset_at(args, work, row) * args.elements.slope_factor;
      }
    }
  }
  // What scores are multiplied by before ScoreFunction, and in the exponent.
  FA3_DEV PerRow score_factor() const {
    if constexpr (kCfg.kv_scales == KvScales::kTiles && !kCfg.column_scales())
      return {{tile.factor[0] * scales.k, tile.factor[1] * scales.k}};
    if constexpr (kCfg.scaled()) return tile.factor;
    return {{args.score_factor, args.score_factor}};
  }
  FA3_DEV PerRow scale_log2() const {
    if constexpr (kCfg.scaled() && kCfg.score == ScoreKind::kPlain) return tile.factor;
    return {{args.scale_log2, args.scale_log2}};
  }

  // All KV tiles of the current Q tile; leaves O and the row sums complete.
  FA3_DEV void attend() {
    const TileRange& own = visit.own;
    o_acc.zero();
    parked.reset();
    if (own.empty()) {
      // No GEMM shows that all threads have seen q_full.
      NamedBarrier{kTileBar + wg, kWgThreads}.sync();
      release_q();
      if constexpr (kCfg.skips()) {
        skip<true>(max(visit.first, visit.end - 1), visit.end);
        skip(visit.first, visit.end - 1);
      }
      return look_ahead();
    }
    if constexpr (kCfg.skips()) skip(own.end, visit.end);
    order.attend(*this);
    if constexpr (kCfg.skips()) skip(visit.first, own.first);
  }

  // The KV tiles from kv_tile down: at the mask's right edge, unmasked, at the mask's left edge.
  // kTail: the first of them may hold keys beyond the sequence, under a full mask too. Mask
  // functors have edges of their own.
  template <bool kTail, class F>
  FA3_DEV void for_kv_tiles(i32 kv_tile, const F& f) {
    if constexpr (kCfg.has_mask()) {
      for_shown_tiles(kv_tile, f);
    } else {
      if constexpr (kCfg.mask != MaskKind::kFull || kTail || Mask::kActive)
        tiles_down<true>(kv_tile, visit.own.unmasked_end, f);
      tiles_down<false>(kv_tile, visit.own.unmasked_first, f);
      if constexpr (kCfg.mask == MaskKind::kWindow || Mask::kActive)
        tiles_down<true>(kv_tile, visit.own.first, f);
    }
  }

  // Those down to `first`. Where O is parked, loops of their own lie between, so that ptxas orders
  // a step as without.
  template <bool kMasked, class F>
  FA3_DEV void tiles_down(i32& kv_tile, i32 first, const F& f) {
    if constexpr (kCfg.park_tiles == 0) {
      FA3_NO_UNROLL
      for (; kv_tile >= first; --kv_tile) f(kv_tile, Masked<kMasked>{});
    } else {
      FA3_NO_UNROLL
      while (kv_tile >= first) {
        const i32 stop = max(kv_tile & -kCfg.park_tiles, first);
        FA3_NO_UNROLL
        for (; kv_tile >= stop; --kv_tile) f(kv_tile, Masked<kMasked>{});
        if (stop % kCfg.park_tiles == 0 && stop > visit.own.first)
          parked.park(smem.side[wg], o_acc);
      }
    }
  }

  // Of those that attn_mask shows.
  template <class F>
  FA3_DEV void for_shown_tiles(i32 kv_tile, const F& f) {
    FA3_NO_UNROLL
    while ((kv_tile = tiles.before(kv_tile + 1, visit.own.first)) >= visit.own.first) {
      const bool inside = kv_tile >= visit.own.unmasked_first && kv_tile < visit.own.unmasked_end;
      const bool changes = tiles.changes(kv_tile);
      if (inside && !changes) {
        f(kv_tile, Masked<false>{});
      } else {
        f(kv_tile, Masked<true>{});
      }
      --kv_tile;
    }
  }

  // KV tiles [first, end) that other consumers' rows see and these do not. All threads wait for
  // each tile: an early release would count for the previous tile, and a thread that misses a phase
  // cannot tell its parity from the one before (ABA). As in steps, each tile but a consumer's first
  // takes a ping-pong turn.
  template <bool kFirst = false>
  FA3_DEV void skip(i32 first, i32 end) {
    FA3_NO_UNROLL
    for (; end > first; --end) {
      if constexpr (!kFirst) {
        turn.wait();
        turn.pass();
      }
      smem.k_full[k.stage].wait(k.phase);
      smem.v_full[v.stage].wait(v.phase);
      NamedBarrier{kTileBar + wg, kWgThreads}.sync();
      release_k();
      release_v();
    }
  }

  // All of Q has been read; where O leaves through its buffer, the epilogue releases it.
  FA3_DEV void release_q() {
    if constexpr (!kCfg.o_in_q) smem.q_empty[tile.q_slot].arrive_if(leader);  // sim:spare(one_tile)
  }
  FA3_DEV void release_k() {
    smem.k_empty[k.stage].arrive_if(leader);
    k.advance();
  }
  FA3_DEV void release_v() {
    smem.v_empty[v.stage].arrive_if(leader);
    v.advance();
  }
};

}  // namespace fa3::sm90
