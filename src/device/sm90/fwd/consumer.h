// SPDX-License-Identifier: BSD-3-Clause
// consumer.h — the forward kernel's consumers: products, softmax, store.
#pragma once

#include "device/hopper/descriptor.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/tma.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/producer.h"
#include "device/warp/score.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// Ping-pong: consumer w issues its products when consumer w − 1 has issued its own.
template <FwdConfig kCfg>
struct Turn {
  u32 wg;

  FA3_DEV void start() const {  // once: as if the last consumer had passed to the first
    if (kCfg.ping_pong && wg == kCfg.consumer_wgs - 1) pass();
  }
  FA3_DEV void wait() const {
    if constexpr (kCfg.ping_pong) NamedBarrier{kTurnBar + wg, 256}.sync();
  }
  FA3_DEV void pass() const {
    if constexpr (kCfg.ping_pong) {
      const u32 next = wg + 1 == kCfg.consumer_wgs ? 0 : wg + 1;
      NamedBarrier{kTurnBar + next, 256}.arrive();
    }
  }
};

// A Q tile while a consumer works on it. What the loop does not need is read again at its end.
struct QTileState {
  u32 work_slot;  // of FwdSmem::work
  u32 q_slot;     // of FwdSmem::q, q_full and q_empty
  RowSoftmax softmax;
};

// The KV tiles of a Q tile, for one consumer's rows and for all.
struct Visit {
  TileRange own;
  i32 first, end;
  bool is_tile;  // else nothing is left
};

// Consumers whose K and V a producer loads.
struct LoadedByProducer {
  FA3_DEV void start(const FwdWork&) {}
  FA3_DEV void refill_k() {}
  FA3_DEV void refill_v() {}
};

// Loads: told of the Q tile that begins and, where nothing waits for it, of K and V that were read.
// Score and Mask: what happens to scores before the softmax (attn/score.h).
template <FwdConfig kCfg, class Loads = LoadedByProducer, class Score = ScoreFunction<kCfg.score>,
          class Mask = BandMask>
struct Consumer {
  using Smem = FwdSmem<kCfg>;
  using KMajorQ = KMajorTile<kCfg.swizzle_qk(), 64 * static_cast<u32>(kCfg.swizzle_qk())>;
  using KMajorK = KMajorTile<kCfg.swizzle_qk(), kCfg.tile_kv* static_cast<u32>(kCfg.swizzle_qk())>;
  using MnMajorV = MnMajorTile<kCfg.swizzle_v(), kCfg.tile_kv* static_cast<u32>(kCfg.swizzle_v())>;
  using KMajorP = KMajorTile<kCfg.swizzle_p(), 64 * static_cast<u32>(kCfg.swizzle_p())>;
  static constexpr MmaType kType = kCfg.dtype;

  Smem& smem;
  const FwdArgs& args;
  u32 wg;  // among the consumers
  bool leader;
  Loads loads;
  Turn<kCfg> turn;
  KMajorQ q_tiles;  // of slot 0, as the others
  KMajorK k_tiles;
  MnMajorV v_tiles;
  Ring<kCfg.q_stages> q;
  Ring<kCfg.stages> k, v;
  Ring<kCfg.work_slots()> slots;
  QTileState tile;
  Visit visit, coming;  // of the current Q tile and the next
  Mask mask;
  RowScale rescale;  // of O, due before the next product
  ptx::Acc<kCfg.tile_kv> s_acc;
  ptx::Acc<kCfg.step == FwdStep::kThreeStage ? kCfg.tile_kv : 8> s_ahead;  // of the next KV tile
  ptx::Acc<kCfg.head_dim_v> o_acc;
  ptx::AFrag p_frag[kCfg.p_in_regs ? kCfg.tile_kv / 16 : 1];

  FA3_DEV Consumer(Smem& smem, const FwdArgs& args, u32 wg, const Loads& loads = {})
      : smem(smem),
        args(args),
        wg(wg),
        leader(ptx::thread_index() % 128 == 0),
        loads(loads),
        turn{wg},
        q_tiles(tile_at<KMajorQ>(smem.q)),
        k_tiles(tile_at<KMajorK>(smem.k)),
        v_tiles(tile_at<MnMajorV>(smem.v)) {}

  // Looks at the next work. What loops depend on goes through reductions, so that the compiler
  // sees one value per warp and keeps rings and descriptors in uniform registers.
  FA3_DEV void look_ahead() {
    smem.work_full[slots.stage].wait(slots.phase);
    const u32 lane = ptx::lane_index();
    // Lanes 0…3: this warpgroup's tiles; 4…8: those of all consumers and the Q tile.
    const FwdSharedWork& work = smem.work[slots.stage];
    const i32 mine =
        ptx::ld_shared(lane < 4 ? &work.wg_range[wg][lane] : &work.word[lane < 8 ? lane - 4 : 4]);
    const auto at = [&](u32 i) {
      return static_cast<i32>(ptx::redux_or(lane == i ? static_cast<u32>(mine) : 0));
    };
    coming = {{at(0), at(1), at(2), at(3)}, at(4), at(7), at(8) >= 0};
  }
  FA3_DEV void release_work(u32 slot) {
    ptx::warp_sync();  // all lanes have read
    smem.work_empty[slot].arrive_if(ptx::lane_index() == 0);
  }

  // The first of this thread's two rows, in its sequence.
  FA3_DEV i32 row_of(const FwdWork& work) const {
    return kCfg.tile_q() * work.tile +
           static_cast<i32>(64 * wg + fragment_row(ptx::thread_index() % 128));
  }
  FA3_DEV Mask mask_of(const FwdWork& work) const {
    const u32 column = fragment_column(ptx::thread_index() % 128);
    return Mask::of(args.band, work.q_used, work.kv_used, row_of(work), static_cast<i32>(column));
  }

  // The work ahead becomes the current tile, when its Q is there.
  FA3_DEV void begin() {
    visit = coming;
    tile.work_slot = slots.stage;
    slots.advance();
    tile.q_slot = q.stage * kCfg.consumer_wgs + wg;
    tile.softmax.reset();
    const FwdWork work = work_of(smem, tile.work_slot);
    mask = mask_of(work);
    loads.start(work);
    smem.q_full[tile.q_slot].wait(q.phase);
    q.advance();
  }

  FA3_DEV void issue_qk(ptx::Acc<kCfg.tile_kv>& s) {
    gemm_ss<kType, kCfg.head_dim_qk / 16>(s, q_tiles.after(tile.q_slot * kCfg.q_bytes()),
                                          k_tiles.after(k.stage * kCfg.k_bytes()), kOverwrite);
  }
  FA3_DEV void issue_pv() {
    const MnMajorV v_tile = v_tiles.after(v.stage * kCfg.v_bytes());
    if constexpr (kCfg.p_in_regs) {
      gemm_rs<kType>(o_acc, p_frag, v_tile, kAccumulate);
    } else {
      gemm_ss<kType, kCfg.tile_kv / 16>(o_acc, tile_at<KMajorP>(smem.p[wg]), v_tile, kAccumulate);
    }
  }
  // Whoever loads into this room is told: in a cluster the producers of all its CTAs.
  FA3_DEV void release(Barrier& empty, Where where = Where::here()) {
    if constexpr (kCfg.cluster == 1) {
      empty.arrive_if(leader, where);
    } else {
      const u32 rank = ptx::thread_index() % 128;
      empty.arrive_at_if(rank % kCfg.cluster, rank < kCfg.cluster, where);
    }
  }
  FA3_DEV void release_k() {
    release(smem.k_empty[k.stage]);
    k.advance();
  }
  FA3_DEV void release_v() {
    release(smem.v_empty[v.stage]);
    v.advance();
  }

  // S → P, unnormalised, in FP32.
  template <bool kMasked>
  FA3_DEV RowScale softmax_of(i32 kv_tile, ptx::Acc<kCfg.tile_kv>& s) {
    Score{args.score_factor}.apply(s);
    if constexpr (kMasked) mask.template apply<kCfg.mask == MaskKind::kWindow>(s, kv_tile);
    return tile.softmax.template update<kCfg.softmax>(s, args.scale_log2);
  }

  // P as A operand of the next product; the last one is complete.
  FA3_DEV void take_p(const ptx::Acc<kCfg.tile_kv>& s) {
    if constexpr (kCfg.p_in_regs) {
      to_operand16<kType>(p_frag, s);
    } else {
      store_operand16<kType, kCfg.swizzle_p()>(smem.p[wg], s, 64);
      ptx::fence_proxy_async_shared();
      ptx::warp_sync();  // a warp's product reads the 16 rows that the warp has written
    }
  }

  // 6 STEP
  // S of each Q tile's first KV tile: there is no P·V yet for it to overlap with.
  FA3_DEV void first_step(i32 kv_tile) {
    smem.k_full[k.stage].wait(k.phase);
    issue_qk(s_acc);
    gemm_wait<0>(s_acc);
    release_k();
    softmax_of<true>(kv_tile, s_acc);
    take_p(s_acc);
    rescale = {{1.f, 1.f}, false};
    smem.v_full[v.stage].wait(v.phase);
    loads.refill_k();
  }

  // S of this KV tile overlaps O += P·V of the one visited before it.
  template <bool kMasked>
  FA3_DEV void step(i32 kv_tile) {
    smem.k_full[k.stage].wait(k.phase);
    turn.wait();
    issue_qk(s_acc);
    issue_pv();
    turn.pass();
    gemm_wait<1>(s_acc);
    release_k();
    rescale = softmax_of<kMasked>(kv_tile, s_acc);
    // V of this tile, needed one step from now: a loop here keeps the exponentials above the wait.
    const Ring<kCfg.stages> next = v.next();
    smem.v_full[next.stage].wait(next.phase);
    gemm_wait<0>(o_acc);
    release_v();
    take_p(s_acc);
    rescale_rows<kCfg.softmax>(o_acc, rescale);
    loads.refill_k(), loads.refill_v();
  }

  FA3_DEV void last_product() {
    issue_pv();
    look_ahead();  // beside the product, as the sums
    tile.softmax.finish();
    gemm_wait<0>(o_acc);
    release_v();
  }

  // One product after the other, nothing overlaps within the warpgroup: the paper's algorithm 1.
  template <bool kMasked>
  FA3_DEV void serial_step(i32 kv_tile) {
    smem.k_full[k.stage].wait(k.phase);
    turn.wait();
    issue_qk(s_acc);
    turn.pass();
    gemm_wait<0>(s_acc);
    release_k();
    rescale_rows<kCfg.softmax>(o_acc, softmax_of<kMasked>(kv_tile, s_acc));
    take_p(s_acc);
    smem.v_full[v.stage].wait(v.phase);
    issue_pv();
    gemm_wait<0>(o_acc);
    release_v();
    loads.refill_k(), loads.refill_v();
  }

  // S of this KV tile is complete in `s`: beside its softmax run Q·Kᵀ of the next tile, into
  // `ahead`, and O += P·V of the one visited before. The second S costs tile_kv / 2 registers.
  template <bool kMasked, bool kLast = false>
  FA3_DEV void three_stage_step(i32 kv_tile, ptx::Acc<kCfg.tile_kv>& s,
                                ptx::Acc<kCfg.tile_kv>& ahead) {
    if constexpr (!kLast) {
      smem.k_full[k.stage].wait(k.phase);
      turn.wait();
      issue_qk(ahead);
    }
    issue_pv();
    if constexpr (!kLast) turn.pass();
    rescale = softmax_of<kMasked>(kv_tile, s);
    const Ring<kCfg.stages> next = v.next();
    smem.v_full[next.stage].wait(next.phase);
    gemm_wait<0>(o_acc);
    if constexpr (!kLast) {
      ptx::fence_regs(ahead);
      release_k();
    }
    release_v();
    take_p(s);
    rescale_rows<kCfg.softmax>(o_acc, rescale);
    if constexpr (!kLast) loads.refill_k();
    loads.refill_v();
  }
  // From kv_tile down to `end`, two at a time since S changes places.
  template <bool kMasked>
  FA3_DEV i32 three_stage_steps(i32 kv_tile, i32 end) {
    FA3_NO_UNROLL
    for (; kv_tile > end; kv_tile -= 2) {
      three_stage_step<kMasked>(kv_tile, s_acc, s_ahead);
      three_stage_step<kMasked>(kv_tile - 1, s_ahead, s_acc);
    }
    if (kv_tile == end) {
      three_stage_step<kMasked>(kv_tile, s_acc, s_ahead);
      FA3_UNROLL
      for (int i = 0; i < kCfg.tile_kv / 2; ++i) s_acc[i] = static_cast<float>(s_ahead[i]);
      --kv_tile;
    }
    return kv_tile;
  }
  // All KV tiles from the second on.
  FA3_DEV void three_stages(i32 kv_tile) {
    const i32 last = visit.own.first;
    if (kv_tile < last) return;
    smem.k_full[k.stage].wait(k.phase);
    issue_qk(s_acc);
    gemm_wait<0>(s_acc);
    release_k();
    loads.refill_k();
    constexpr bool kMasks = kCfg.mask != MaskKind::kFull;
    if constexpr (kMasks)
      kv_tile = three_stage_steps<true>(kv_tile, most(visit.own.plain_end, last + 1));
    kv_tile = three_stage_steps<false>(kv_tile, most(visit.own.plain_first, last + 1));
    if constexpr (kCfg.mask == MaskKind::kWindow)
      kv_tile = three_stage_steps<true>(kv_tile, last + 1);
    three_stage_step<kMasks, true>(kv_tile, s_acc, s_ahead);
  }

  // 7 CONSUMER
  template <bool kMasked>
  FA3_DEV void any_step(i32 kv_tile) {
    if constexpr (kCfg.step == FwdStep::kSerial) {
      serial_step<kMasked>(kv_tile);
    } else {
      step<kMasked>(kv_tile);
    }
  }

  // The KV tiles from kv_tile down: under the mask, in the plain, under the mask's left edge.
  FA3_DEV void steps(i32 kv_tile) {
    if constexpr (kCfg.mask != MaskKind::kFull || kCfg.step == FwdStep::kSerial) {
      FA3_NO_UNROLL
      for (; kv_tile >= visit.own.plain_end; --kv_tile) any_step<true>(kv_tile);
    }
    FA3_NO_UNROLL
    for (; kv_tile >= visit.own.plain_first; --kv_tile) any_step<false>(kv_tile);
    if constexpr (kCfg.mask == MaskKind::kWindow) {
      FA3_NO_UNROLL
      for (; kv_tile >= visit.own.first; --kv_tile) any_step<true>(kv_tile);
    }
  }

  // KV tiles [first, end) that other consumers' rows see and these do not. Each is waited for, by
  // all threads: an early release would count for the tile before it, and whoever has not seen a
  // phase when the next one ends takes it for an old one. A turn goes by for each tile but a
  // consumer's first, as in steps.
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
      NamedBarrier{kTileBar + wg, 128}.sync();
      release_k();
      release_v();
    }
  }

  // All KV tiles of the current Q tile; O and its sums are complete then.
  FA3_DEV void attend() {
    const TileRange& own = visit.own;
    o_acc.zero();
    if (own.empty()) {
      NamedBarrier{kTileBar + wg, 128}.sync();  // no product tells that all have seen q_full
      release_q();
      if constexpr (kCfg.skips()) {
        skip<true>(most(visit.first, visit.end - 1), visit.end);
        skip(visit.first, visit.end - 1);
      }
      return look_ahead();
    }
    if constexpr (kCfg.skips()) skip(own.end, visit.end);
    if constexpr (kCfg.step == FwdStep::kSerial) {
      steps(own.end - 1);
      release_q();
      tile.softmax.finish();
      look_ahead();
    } else {
      first_step(own.end - 1);
      if constexpr (kCfg.step == FwdStep::kThreeStage) {
        three_stages(own.end - 2);
      } else {
        steps(own.end - 2);
      }
      release_q();
      last_product();
    }
    if constexpr (kCfg.skips()) skip(visit.first, own.first);
  }
  // All of Q has been read; where O leaves through it, that comes later.
  FA3_DEV void release_q() {
    if constexpr (!kCfg.o_in_q) smem.q_empty[tile.q_slot].arrive_if(leader);
  }

  FA3_DEV void run() {
    turn.start();
    FA3_NO_UNROLL
    for (look_ahead(); coming.is_tile;) {
      begin();
      attend();
      store_tile(tile);
    }
    // Shared memory goes when the CTA ends; Q's room is waited for at once.
    if (!kCfg.o_in_q && leader) ptx::bulk_wait_read<0>();
  }

  // 8 EPILOGUE: O / sum as 16 bits through shared memory; rows that see nothing are zeros.
  FA3_DEV void store_lse(const QTileState& done, const FwdWork& work, const bool (&nothing)[2]) {
    if (ptx::thread_index() % 4 != 0 || args.lse == nullptr) return;
    const i32 row = row_of(work);
    const i64 first = args.q_axis.cu_seqlens != nullptr ? work.q_begin : 0;
    float* const to = args.lse + work.batch * args.lse_batch + work.head * args.lse_head +
                      (first + row) * args.lse_row;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (row + 8 * h >= work.q_rows) continue;
      const float lse = nothing[h] ? -kInf : done.softmax.lse(h, args.scale_log2);
      ptx::st_global(to + 8 * h * args.lse_row, lse);
    }
  }
  FA3_DEV u8* o_room(const QTileState& done) {
    return kCfg.o_in_q ? smem.q[done.q_slot] : smem.o[wg];
  }
  FA3_DEV void stage_o(const QTileState& done, const bool (&nothing)[2]) {
    float inverse[2];
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) inverse[h] = ptx::rcp(done.softmax.sum[h]);
    FA3_UNROLL
    for (int i = 0; i < kCfg.head_dim_v / 2; ++i) {
      const int h = i / 2 % 2;
      o_acc[i] = nothing[h] ? 0.f : o_acc[i] * inverse[h];
    }
    store_operand16<kType, kCfg.swizzle_v()>(o_room(done), o_acc, 64);
  }
  FA3_DEV void send_o(const QTileState& done, const FwdWork& work) {
    constexpr i32 kColumns = static_cast<i32>(kCfg.swizzle_v()) / 2;
    const i32 row = kCfg.tile_q() * work.tile + static_cast<i32>(64 * wg);
    FA3_UNROLL
    for (i32 panel = 0; panel * kColumns < kCfg.head_dim_v; ++panel) {
      const u32 from =
          ptx::smem_address(o_room(done)) + static_cast<u32>(panel * 64 * 2 * kColumns);
      if constexpr (kCfg.ragged) {
        ptx::tma_store_5d(args.o, from, panel * kColumns, kRaggedRows - work.q_rows + row,
                          work.q_begin + work.q_rows, kRaggedRows, work.head);
      } else {
        ptx::tma_store_4d(args.o, from, panel * kColumns, row, work.head, work.batch);
      }
    }
    ptx::bulk_commit();
  }
  FA3_DEV void store_tile(const QTileState& done) {
    const NamedBarrier all{kTileBar + wg, 128};
    if constexpr (!kCfg.o_in_q) {
      if (leader) ptx::bulk_wait_read<0>();  // the tile before has left,
      all.sync();                            // which all are told
    }
    const FwdWork work = work_of(smem, done.work_slot);
    release_work(done.work_slot);
    const Mask seen = mask_of(work);
    const bool nothing[2] = {seen.sees_nothing(0), seen.sees_nothing(1)};
    stage_o(done, nothing);
    ptx::fence_proxy_async_shared();
    all.sync();
    if (leader) {
      send_o(done, work);
      if constexpr (kCfg.o_in_q) {
        ptx::bulk_wait_read<0>();
        smem.q_empty[done.q_slot].arrive();
      }
    }
    store_lse(done, work, nothing);
    ptx::warp_sync();  // lest the compiler takes lanes to be apart in the loops that follow
  }
};

}  // namespace fa3::sm90
