// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90.cuh — forward attention on Hopper: TMA, warp specialisation, wgmma.
// Guide: docs/guide/fwd_schedule.md. Sources: FlashAttention-3, algorithms 1 and 2.
// 1 CONTRACT    O = softmax(score(Q·Kᵀ) + mask)·V per head, LSE in natural logarithm. The plan
//               guarantees a legal configuration (plan/configs_sm90.h), maps of the boxes below and
//               fewer than 2^30 rows per tensor. Values of cu_seqlens and seqused may be anything.
// 2 ROLES       wg 0: producer; its warp 0 finds the work and loads Q, K, V by TMA ·
//               wg 1…: consumers, 64 rows of Q each: products, softmax, store
// 3 BARRIERS    name            count           tx bytes  arrives                    waits
//               q_full[w]       1               64 rows   producer, TMA              consumer w
//               q_empty[w]      1               –         thread 0 of consumer w     producer
//               k_full[s]       1               K tile    producer, TMA              consumers
//               k_empty[s]      consumer_wgs    –         thread 0 of each consumer  producer
//               v_full, v_empty                           as K
//               work_full[r]    1               –         lane 0 of the producer     consumers
//               work_empty[r]   4·consumer_wgs  –         lane 0 of each warp        producer
//               kTileBar + w    128 (named)     –         consumer w                 the same
//               kTurnBar + w    256 (named)     –         consumer w − 1             consumer w
#pragma once

#include "device/attn/fwd_tiles.h"
#include "device/attn/score.h"
#include "device/attn/softmax.h"
#include "device/attn/tile_range.h"
#include "device/hopper/barrier.h"
#include "device/hopper/descriptor.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/memory.h"
#include "device/ptx/tma.h"

namespace fa3 {

inline constexpr u32 kTileBar = 1, kTurnBar = 4;

// 4 SMEM. Tiles lie in panels: [panel of swizzle-wide columns][row][swizzle bytes].
template <FwdConfig kCfg>
struct FwdSmem {
  static constexpr int kStages = kCfg.stages, kWgs = kCfg.consumer_wgs;
  static constexpr u32 kKBytes = kCfg.k_bytes(), kVBytes = kCfg.v_bytes();
  // Tiles that have no room of their own are bytes that nobody touches.
  static constexpr bool kHasP = kCfg.p_bytes() > 0, kHasO = kCfg.o_bytes() > 0;
  static_assert(kHasO || 64 * kCfg.row_bytes_v() <= kCfg.q_bytes(), "o_in_q: O is larger than Q");

  alignas(1024) u8 q[kWgs][kCfg.q_bytes()];
  alignas(1024) u8 k[kStages][kKBytes];
  alignas(1024) u8 v[kStages][kVBytes];
  alignas(kHasO ? 1024 : 1) u8 o[kHasO ? kWgs : 1][kHasO ? kCfg.o_bytes() : 1];
  alignas(kHasP ? 1024 : 1) u8 p[kHasP ? kWgs : 1][kHasP ? kCfg.p_bytes() : 1];
  FwdWords work[2];
  Barrier q_full[kWgs], q_empty[kWgs], k_full[kStages], k_empty[kStages], v_full[kStages],
      v_empty[kStages], work_full[2], work_empty[2];
  FA3_NAMED(q, k, v, o, p, work, q_full, q_empty, k_full, k_empty, v_full, v_empty, work_full,
            work_empty)

  // Where consumer w puts O before it leaves: its own rows of Q are free by then.
  FA3_DEV u8* o_of(u32 w) { return kHasO ? o[w] : q[w]; }

  FA3_DEV void init_barriers() {
    for (int w = 0; w < kWgs; ++w) q_full[w].init(1), q_empty[w].init(1);
    for (int s = 0; s < kStages; ++s) {
      k_full[s].init(1), k_empty[s].init(kWgs);
      v_full[s].init(1), v_empty[s].init(kWgs);
    }
    for (int r = 0; r < 2; ++r) work_full[r].init(1), work_empty[r].init(4 * kWgs);
  }
};

// Rows of one head of one sequence, as TMA finds them.
struct FwdSource {
  i32 begin, rows, head, batch;
};

// 5 PRODUCER
// A tile of kRows rows from row `row` on, panel by panel; `full` gets the bytes of all.
template <bool kRagged, int kHeadDim, int kRows>
FA3_DEV void load_tile(u8* to, const TensorMap& map, Barrier& full, const FwdSource& from, i32 row,
                       ptx::L2Hint hint) {
  constexpr i32 kColumns = static_cast<i32>(FwdConfig::swizzle_of(kHeadDim)) / 2;
  constexpr u32 kPanels = FwdConfig::row_bytes(kHeadDim) / (2 * kColumns);
  constexpr u32 kPanelBytes = kRows * 2 * kColumns;
  full.arrive_expect_tx(kPanels * kPanelBytes);
  const u32 address = ptx::smem_address(to);
  FA3_UNROLL
  for (u32 panel = 0; panel < kPanels; ++panel) {
    const u32 at = address + panel * kPanelBytes;
    const i32 column = kColumns * static_cast<i32>(panel);
    if constexpr (kRagged) {
      ptx::tma_load_5d(at, map, full.address(), column, kRaggedRows - from.rows + row,
                       from.begin + from.rows, kRaggedRows, from.head, hint);
    } else {
      ptx::tma_load_4d(at, map, full.address(), column, row, from.head, from.batch, hint);
    }
  }
}

template <FwdConfig kCfg>
struct Producer {
  using Smem = FwdSmem<kCfg>;
  Smem& smem;
  const FwdArgs& args;
  Ring<kCfg.stages> k = Ring<kCfg.stages>::producer(), v = k;
  Ring<1> q = Ring<1>::producer();

  FA3_DEV void load_q(const FwdWork& work) {
    const FwdSource from{work.q_begin, work.q_rows, work.head, work.batch};
    FA3_UNROLL
    for (i32 w = 0; w < kCfg.consumer_wgs; ++w) {
      smem.q_empty[w].wait(q.phase);
      load_tile<kCfg.ragged, kCfg.head_dim_qk, 64>(smem.q[w], args.q, smem.q_full[w], from,
                                                     kCfg.tile_q() * work.tile + 64 * w,
                                                     ptx::L2Hint::kEvictFirst);
    }
    q.advance();
  }
  FA3_DEV void load_k(const FwdSource& from, i32 tile) {
    smem.k_empty[k.stage].wait(k.phase);
    load_tile<kCfg.ragged, kCfg.head_dim_qk, kCfg.tile_kv>(smem.k[k.stage], args.k,
                                                              smem.k_full[k.stage], from,
                                                              kCfg.tile_kv * tile,
                                                              ptx::L2Hint::kEvictLast);
    k.advance();
  }
  FA3_DEV void load_v(const FwdSource& from, i32 tile) {
    smem.v_empty[v.stage].wait(v.phase);
    load_tile<kCfg.ragged, kCfg.head_dim_v, kCfg.tile_kv>(smem.v[v.stage], args.v,
                                                             smem.v_full[v.stage], from,
                                                             kCfg.tile_kv * tile,
                                                             ptx::L2Hint::kEvictLast);
    v.advance();
  }

  // K runs one tile ahead of V, as the consumers do; the first K does not wait for Q's room.
  FA3_DEV void load(const FwdWork& work) {
    const FwdSource from{work.kv_begin, work.kv_used, work.head / args.group_size, work.batch};
    const IndexRange rows{i64{kCfg.tile_q()} * work.tile, i64{kCfg.tile_q()} * (work.tile + 1)};
    const TileRange range = tile_range(args.band, work.lens(), rows, kCfg.tile_kv);
    if (range.empty()) return load_q(work);
    load_k(from, range.end - 1);
    load_q(work);
    FA3_NO_UNROLL
    for (i32 tile = range.end - 2; tile >= range.first; --tile) {
      load_k(from, tile);
      load_v(from, tile + 1);
    }
    load_v(from, range.first);
  }
};

template <FwdConfig kCfg>
FA3_DEV void produce(FwdSmem<kCfg>& smem, const FwdArgs& args) {
  FwdTiles<kCfg> tiles(args);
  Producer<kCfg> producer{smem, args};
  auto slot = Ring<2>::producer();
  const bool leader = ptx::lane_index() == 0;
  for (bool more = true; more; slot.advance()) {
    const FwdWork work = tiles.next();
    more = work.tile >= 0;
    if (leader) {
      smem.work_empty[slot.stage].wait(slot.phase);
      FA3_UNROLL
      for (int i = 0; i < 8; ++i) {
        ptx::st_shared(&smem.work[slot.stage][i], ptx::bits_as<FwdWords>(work)[i]);
      }
      smem.work_full[slot.stage].arrive();
      if (more) producer.load(work);
    }
    ptx::warp_sync();
  }
}

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

// 6 STEP
template <FwdConfig kCfg>
struct Consumer {
  using Smem = FwdSmem<kCfg>;
  using KMajorQ = KMajorTile<kCfg.swizzle_qk(), 64 * static_cast<u32>(kCfg.swizzle_qk())>;
  using KMajorK = KMajorTile<kCfg.swizzle_qk(), kCfg.tile_kv * static_cast<u32>(kCfg.swizzle_qk())>;
  using MnMajorV = MnMajorTile<kCfg.swizzle_v(), kCfg.tile_kv * static_cast<u32>(kCfg.swizzle_v())>;
  static constexpr MmaType kType = kCfg.dtype;

  Smem& smem;
  const FwdArgs& args;
  u32 wg;  // among the consumers
  bool leader;
  Turn<kCfg> turn;
  KMajorQ q_tile;
  KMajorK k_tiles;  // of stage 0
  MnMajorV v_tiles;
  Ring<kCfg.stages> k, v;
  ptx::Acc<kCfg.tile_kv> s_acc;
  ptx::Acc<kCfg.head_dim_v> o_acc;
  ptx::AFrag p_frag[kCfg.tile_kv / 16];
  RowSoftmax softmax;
  BandMask mask;

  FA3_DEV Consumer(Smem& smem, const FwdArgs& args, u32 wg)
      : smem(smem),
        args(args),
        wg(wg),
        leader(ptx::thread_index() % 128 == 0),
        turn{wg},
        q_tile(tile_at<KMajorQ>(smem.q[wg])),
        k_tiles(tile_at<KMajorK>(smem.k)),
        v_tiles(tile_at<MnMajorV>(smem.v)) {
    softmax.scale_log2 = args.scale_log2;
  }

  FA3_DEV void issue_qk() {
    gemm_ss<kType, kCfg.head_dim_qk / 16>(s_acc, q_tile, k_tiles.after(k.stage * Smem::kKBytes),
                                          kOverwrite);
  }
  FA3_DEV void issue_pv() {
    gemm_rs<kType>(o_acc, p_frag, v_tiles.after(v.stage * Smem::kVBytes), kAccumulate);
  }
  template <bool kMasked>
  FA3_DEV RowScale softmax_of(i32 tile) {
    apply_score<kCfg.score>(s_acc, args.score_factor);
    if constexpr (kMasked) mask.template apply<kCfg.mask == FwdMask::kWindow>(s_acc, tile);
    return softmax.update(s_acc);
  }

  // S of the last tile, ahead of all others.
  FA3_DEV void first_tile(i32 tile) {
    smem.k_full[k.stage].wait(k.phase);
    issue_qk();
    gemm_wait<0>(s_acc);
    smem.k_empty[k.stage].arrive_if(leader);
    k.advance();
    softmax_of<true>(tile);
    to_operand16<kType>(p_frag, s_acc);
    smem.v_full[v.stage].wait(v.phase);
  }

  // S of this tile overlaps O += P·V of the one after it, which was visited before.
  template <bool kMasked>
  FA3_DEV void attend_tile(i32 tile) {
    smem.k_full[k.stage].wait(k.phase);
    turn.wait();
    issue_qk();
    issue_pv();
    turn.pass();
    gemm_wait<1>(s_acc);
    smem.k_empty[k.stage].arrive_if(leader);
    k.advance();
    const RowScale rescale = softmax_of<kMasked>(tile);
    // V of this tile, needed one step from now: a loop here keeps the exponentials above the wait.
    const Ring<kCfg.stages> next = v.next();
    smem.v_full[next.stage].wait(next.phase);
    gemm_wait<0>(o_acc);
    smem.v_empty[v.stage].arrive_if(leader);
    v = next;
    to_operand16<kType>(p_frag, s_acc);
    o_acc *= rescale;
  }

  // All of Q has been read; where O leaves through it, that comes later.
  FA3_DEV void release_q() {
    if constexpr (!kCfg.o_in_q) smem.q_empty[wg].arrive_if(leader);
  }

  FA3_DEV void last_product() {
    issue_pv();
    softmax.finish();
    gemm_wait<0>(o_acc);
    smem.v_empty[v.stage].arrive_if(leader);
    v.advance();
  }

  // 7 CONSUMER: all KV tiles of one Q tile.
  FA3_DEV void attend(const FwdWork& work) {
    const i32 thread = static_cast<i32>(ptx::thread_index() % 128);
    const i32 first_row = kCfg.tile_q() * work.tile;
    const TileRange range = tile_range(args.band, work.lens(),
                                       {first_row, first_row + kCfg.tile_q()}, kCfg.tile_kv);
    mask = BandMask::of(args.band, work.lens(),
                        first_row + static_cast<i32>(64 * wg + fragment_row(thread)),
                        static_cast<i32>(fragment_column(thread)));
    softmax.reset();
    o_acc.zero();
    if (range.empty()) {
      NamedBarrier{kTileBar + wg, 128}.sync();  // no product tells that all have seen q_full
      return release_q();
    }
    i32 tile = range.end - 1;
    first_tile(tile--);
    if constexpr (kCfg.mask != FwdMask::kFull) {
      FA3_NO_UNROLL
      for (; tile >= range.plain_end; --tile) attend_tile<true>(tile);
    }
    FA3_NO_UNROLL
    for (; tile >= range.plain_first; --tile) attend_tile<false>(tile);
    if constexpr (kCfg.mask == FwdMask::kWindow) {
      FA3_NO_UNROLL
      for (; tile >= range.first; --tile) attend_tile<true>(tile);
    }
    release_q();
    last_product();
  }

  // 8 EPILOGUE: O / sum as 16 bits through shared memory; rows that see nothing are zeros.
  FA3_DEV void store_lse(const FwdWork& work) {
    const u32 thread = ptx::thread_index() % 128;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      const i32 row = static_cast<i32>(kCfg.tile_q() * work.tile + 64 * wg + fragment_row(thread)) + 8 * h;
      if (thread % 4 != 0 || row >= work.q_rows || args.lse == nullptr) continue;
      const i64 first = args.q_axis.cu_seqlens != nullptr ? work.q_begin : 0;
      float* const to = args.lse + work.batch * args.lse_batch + work.head * args.lse_head +
                        (first + row) * args.lse_row;
      ptx::st_global(to, mask.sees_nothing(h) ? -kInf : softmax.lse(h));
    }
  }
  FA3_DEV void stage_o() {
    constexpr u32 kWidth = static_cast<u32>(kCfg.swizzle_v());
    const u32 lane = ptx::lane_index(), row = 16 * (ptx::warp_index() % 4) + lane % 16;
    float inverse[2];
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) inverse[h] = ptx::rcp(softmax.sum[h]);
    FA3_UNROLL
    for (int t = 0; t < kCfg.head_dim_v / 16; ++t) {
      ptx::Vec<u32, 4> packed;
      FA3_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int i = operand16_source(t, r), h = r % 2;
        const u32 pair = pack16<kType>(o_acc[i] * inverse[h], o_acc[i + 1] * inverse[h]);
        packed[r] = mask.sees_nothing(h) ? 0 : pair;
      }
      u8* const panel = smem.o_of(wg) + 32 * t / kWidth * (64 * kWidth);
      ptx::stmatrix_x4(panel + panel_offset(row, 32 * t % kWidth + lane / 16 * 16, kCfg.swizzle_v()),
                       packed);
    }
  }
  FA3_DEV void store_o(const FwdWork& work) {
    constexpr i32 kColumns = static_cast<i32>(kCfg.swizzle_v()) / 2;
    const i32 row = kCfg.tile_q() * work.tile + static_cast<i32>(64 * wg);
    FA3_UNROLL
    for (i32 panel = 0; panel * kColumns < kCfg.head_dim_v; ++panel) {
      const u32 from = ptx::smem_address(smem.o_of(wg)) + static_cast<u32>(panel * 64 * 2 * kColumns);
      if constexpr (kCfg.ragged) {
        ptx::tma_store_5d(args.o, from, panel * kColumns, kRaggedRows - work.q_rows + row,
                          work.q_begin + work.q_rows, kRaggedRows, work.head);
      } else {
        ptx::tma_store_4d(args.o, from, panel * kColumns, row, work.head, work.batch);
      }
    }
    ptx::bulk_commit();
  }
  FA3_DEV void store_tile(const FwdWork& work) {
    const NamedBarrier all{kTileBar + wg, 128};
    if constexpr (!kCfg.o_in_q) {  // the tile before has left
      if (leader) ptx::bulk_wait_read<0>();
      all.sync();
    }
    stage_o();
    ptx::fence_proxy_async_shared();
    all.sync();
    if (leader) {
      store_o(work);
      if constexpr (kCfg.o_in_q) {
        ptx::bulk_wait_read<0>();
        smem.q_empty[wg].arrive();
      }
    }
    store_lse(work);
  }
};

// The next tile, from the producer. Shuffled, so that the compiler sees one value per warp.
template <FwdConfig kCfg>
FA3_DEV FwdWork receive_work(FwdSmem<kCfg>& smem, const Ring<2>& slot) {
  smem.work_full[slot.stage].wait(slot.phase);
  const i32 mine = ptx::ld_shared(&smem.work[slot.stage][ptx::lane_index() % 8]);
  FwdWords words;
  FA3_UNROLL
  for (u32 i = 0; i < 8; ++i) words[static_cast<int>(i)] = ptx::shfl_idx(mine, i);
  ptx::warp_sync();  // all lanes have read
  smem.work_empty[slot.stage].arrive_if(ptx::lane_index() == 0);
  return ptx::bits_as<FwdWork>(words);
}

template <FwdConfig kCfg>
FA3_DEV void consume(FwdSmem<kCfg>& smem, const FwdArgs& args, u32 wg) {
  Consumer<kCfg> c(smem, args, wg);
  c.turn.start();
  Ring<2> slot;
  Ring<1> q;
  for (;; slot.advance(), q.advance()) {
    const FwdWork work = receive_work(smem, slot);
    if (work.tile < 0) break;
    smem.q_full[wg].wait(q.phase);
    c.attend(work);
    c.store_tile(work);
  }
  if (c.leader) ptx::bulk_wait_read<0>();  // shared memory goes when the CTA ends
}

// 9 KERNEL
template <FwdConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void fwd_sm90(FA3_GRID_CONSTANT const FwdArgs args) {
  static_assert(sizeof(FwdSmem<kCfg>) <= kCfg.smem_bytes(), "smem_bytes() forgets something");
  auto& smem = ptx::smem_as<FwdSmem<kCfg>>();
  const u32 wg = ptx::warpgroup_index();
  if (ptx::thread_index() == 0) {
    smem.init_barriers();
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (wg == 0) {
    ptx::reg_decrease<kCfg.producer_registers()>();
    if (ptx::warp_index() == 0) produce<kCfg>(smem, args);
  } else {
    ptx::reg_increase<kCfg.consumer_registers()>();
    consume<kCfg>(smem, args, wg - 1);
  }
}

}  // namespace fa3
