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
#include "device/sm90/fwd/accumulate.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/mask.h"
#include "device/sm90/fwd/mask_tile.h"
#include "device/sm90/fwd/missing.h"
#include "device/sm90/fwd/scores.h"
#include "device/sm90/fwd/smem.h"
#include "device/sm90/fwd/weights.h"
#include "device/warp/element.h"
#include "device/warp/fragment.h"
#include "device/warp/mask_tensor.h"
#include "device/warp/score.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// Ping-pong: consumer w issues its GEMMs when consumer w − 1 has issued its own. Here: without.
template <FwdConfig kCfg, bool kPingPong = kCfg.overlap.ping_pong>
struct Turn {
  u32 wg;

  FA3_DEV void start() const {}
  FA3_DEV void wait() const {}
  FA3_DEV void pass() const {}
};
template <FwdConfig kCfg>
struct Turn<kCfg, true> {
  u32 wg;

  FA3_DEV void start() const {  // once: as if the last consumer had passed to the first
    if (wg == kCfg.tile.consumer_wgs - 1) pass();
  }
  FA3_DEV void wait() const { NamedBarrier{kTurnBar + wg, 2 * kWgThreads}.sync(); }
  FA3_DEV void pass() const {
    const u32 next = wg + 1 == kCfg.tile.consumer_wgs ? 0 : wg + 1;
    NamedBarrier{kTurnBar + next, 2 * kWgThreads}.arrive();
  }
};

// A Q tile while a consumer works on it. What the loop does not need is read again in the epilogue.
template <FwdConfig kCfg, bool kBiased>
struct QTileState {
  u32 work_slot;  // of FwdSmem::work
  u32 q_slot;     // of FwdSmem::q, q_full and q_empty
  RowSoftmax<kCfg.scores.softmax, kBiased> softmax;
};

// V as the GEMM's operand: as TMA has loaded it, or transposed.
template <FwdConfig kCfg>
struct VTile {
  using Operand = MnMajorOperand<kCfg.v_tile()>;
};
template <FwdConfig kCfg>
requires(kCfg.types.v8()) struct VTile<kCfg> {
  using Operand =
      KMajorTile<kCfg.turned_v().swizzle(), static_cast<u32>(kCfg.turned_v().panel_bytes())>;
};

// Operands of the GEMMs in shared memory, at stage 0.
template <FwdConfig kCfg>
struct FwdOperands {
  using Q = KMajorOperand<kCfg.q_tile()>;
  using K = KMajorOperand<kCfg.k_tile()>;
  using V = typename VTile<kCfg>::Operand;
  Q q;
  K k;
  V v;
};

// The KV tiles of a Q tile: those that this consumer's rows see, and those that any rows see.
struct Visit {
  TileRange own;
  i32 first, end;
  bool is_tile;  // else no work is left
};

// The order of GEMMs and softmax over the KV tiles of a Q tile: the paper's algorithm 2. Others are
// in sm90/ablation.
struct TwoStage {
  template <class Consumer>
  FA3_DEV void attend(Consumer& c) {
    const i32 last = c.visit.own.end - 1;
    c.first_step(last);
    c.template for_kv_tiles<false>(last - 1,
                                   [&](i32 kv_tile, auto masked) { c.step(kv_tile, masked); });
    c.release_q();
    c.last_pv();
  }
};

// F: Functors (warp/element.h); those of scores and masks are applied after the score function and
// the band. The compiler numbers registers in the order of the members: another order is another
// kernel (docs/adr/0030).
template <FwdConfig kCfg, class Order, class F>
struct Consumer {
  static constexpr FwdConfig kConfig = kCfg;
  using Smem = FwdSmem<kCfg>;
  using Scores = typename ScoresOf<kCfg, typename F::Score>::Type;
  using Q = typename FwdOperands<kCfg>::Q;
  using K = typename FwdOperands<kCfg>::K;
  using V = typename FwdOperands<kCfg>::V;

  Smem& smem;
  const FwdArgs& args;
  u32 wg;  // among the consumers
  bool leader;
  Order order;
  Turn<kCfg> turn;
  FwdOperands<kCfg> operands;
  Ring<kCfg.tile.q_stages> q;
  Ring<kCfg.tile.stages> k, v;
  Ring<max(kCfg.mask.stages, 1)> added;  // tiles of attn_mask
  Ring<FwdConfig::kWorkSlots> slots;
  QTileState<kCfg, Scores::kBiased> tile;
  Visit visit, next_visit;  // of the current Q tile and the next
  typename MaskOf<kCfg, typename F::Mask>::Type mask;
  RowScale rescale;               // of O, due before the next GEMM
  Scores scores;                  // S, then P
  typename SumOf<kCfg>::Type pv;  // O, and P as an operand
  PWeight<typename F::Weight> weight;
  MissingKeys<kCfg> missing;

  FA3_DEV Consumer(Smem& smem, const FwdArgs& args, u32 wg, const Order& order = {})
      : smem(smem),
        args(args),
        wg(wg),
        leader(ptx::thread_index() % kWgThreads == 0),
        order(order),
        turn{wg},
        operands{tile_at<Q>(smem.q), tile_at<K>(smem.k), tile_at<V>(smem.v)} {}

  // Completes the sums of the current rows.
  FA3_DEV void finish_rows() {
    tile.softmax.finish();
    pv.join(*this);
    missing.finish(*this);
  }

  // step.h
  template <class S, class M>
  FA3_DEV void apply_score(i32 kv_tile, S& s, M masked);
  template <class S, class P, class M>
  FA3_DEV RowScale softmax_tile(i32 kv_tile, S& s, P& p, M masked);
  FA3_DEV void first_step(i32 kv_tile);
  template <class M>
  FA3_DEV void step(i32 kv_tile, M masked);
  FA3_DEV void last_pv();
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
    if (!kCfg.output.in_q && leader) ptx::bulk_wait_read<0>();  // sim:spare(one_tile)
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
  // At the end of attend(), or where that is too early after it.
  FA3_DEV void look_early() {
    if constexpr (!kCfg.looks_late()) look_ahead();
  }
  FA3_DEV void release_work(u32 slot) {
    ptx::warp_sync();  // all lanes have read  sim:spare(work_read)
    smem.work_empty[slot].arrive_if(ptx::lane_index() == 0);  // sim:spare(one_tile)
  }

  // The first of this thread's two rows, in its sequence.
  FA3_DEV i32 row_of(const FwdWork& work) const {
    return kCfg.tile.q() * work.tile +
           static_cast<i32>(kWgRows * wg + fragment_row(ptx::thread_index() % kWgThreads));
  }
  FA3_DEV BandMask band_of(const FwdWork& work) const {
    const u32 column = fragment_column(ptx::thread_index() % kWgThreads);
    return BandMask::of(args.template band<kCfg.mask.kind>(), work.q_used, work.kv_used,
                        row_of(work), static_cast<i32>(column));
  }

  // Makes the next work the current tile; waits for its Q.
  FA3_DEV void begin() {
    visit = next_visit;
    tile.work_slot = slots.stage;
    missing.begin(slots.phase);
    slots.advance();
    tile.q_slot = q.stage * kCfg.tile.consumer_wgs + wg;
    tile.softmax.reset();
    const FwdWork work = smem.work[tile.work_slot].read();
    mask.begin(*this, work);
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      scores.functor.begin(*this, work, h);
      mask.functor.begin(*this, work, h);
    }
    mask.begin_tiles(*this, work);
    scores.begin(*this, work);
    weight.begin(*this, work);
    smem.q_full[tile.q_slot].wait(q.phase);
    q.advance();
  }

  // All KV tiles of the current Q tile; leaves O and the row sums complete.
  FA3_DEV void attend() {
    const TileRange& own = visit.own;
    pv.begin();
    if (own.empty()) {
      // No GEMM shows that all threads have seen q_full.
      NamedBarrier{kTileBar + wg, kWgThreads}.sync();
      missing.find(*this);  // no phase is to be missed
      release_q();
      skip<true>(max(visit.first, visit.end - 1), visit.end);
      skip(visit.first, visit.end - 1);
      return look_ahead();
    }
    skip(own.end, visit.end);
    order.attend(*this);
    skip(visit.first, own.first);
    if constexpr (kCfg.looks_late()) look_ahead();
  }

  // f(kv_tile, masked) for the KV tiles from kv_tile down. kTail: the first of them may hold keys
  // beyond the sequence, under a full mask too.
  template <bool kTail, class Fn>
  FA3_DEV void for_kv_tiles(i32 kv_tile, const Fn& f) {
    mask.template for_tiles<kTail>(*this, kv_tile, f);
  }

  // Operands of the current stages.
  FA3_DEV Q q_tile() const {
    return operands.q.after(tile.q_slot * static_cast<u32>(kCfg.q_tile().bytes()));
  }
  FA3_DEV K k_tile() const {
    return operands.k.after(k.stage * static_cast<u32>(kCfg.k_tile().bytes()));
  }
  FA3_DEV V v_tile() const { return operands.v.after(v.stage * static_cast<u32>(kCfg.v_bytes())); }
  template <class S>
  FA3_DEV void issue_qk(S& s) const {
    gemm_ss<kCfg.types.qk, kCfg.tile.head_dim_qk / kCfg.types.qk_step()>(s, q_tile(), k_tile(),
                                                                         kOverwrite);
  }

  // KV tiles [first, end) that other consumers' rows see and these do not. All threads wait for
  // each tile: an early release would count for the previous tile, and a thread that misses a phase
  // cannot tell its parity from the one before (ABA). As in steps, each tile but a consumer's first
  // takes a ping-pong turn.
  template <bool kFirst = false>
  FA3_DEV void skip(i32 first, i32 end) requires(kCfg.skips()) {
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

  template <bool kFirst = false>
  FA3_DEV void skip(i32, i32) requires(!kCfg.skips()) {}

  // All of Q has been read; where O leaves through its buffer, the epilogue releases it.
  FA3_DEV void release_q() {
    if constexpr (!kCfg.output.in_q)
      smem.q_empty[tile.q_slot].arrive_if(leader);  // sim:spare(one_tile)
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
