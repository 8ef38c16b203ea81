// SPDX-License-Identifier: BSD-3-Clause
// producer.h — the forward kernel's producer and scheduler.
#pragma once

#include "device/attn/tile_range.h"
#include "device/hopper/ring.h"
#include "device/ptx/memory.h"
#include "device/ptx/tma.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/scheduler.h"
#include "device/sm90/fwd/smem.h"

namespace fa3::sm90 {

// Rows of one head of one sequence, as TMA finds them.
struct FwdSource {
  i32 begin, rows, head, batch;
};

// 5 PRODUCER
// A tile of kRows rows from row `row` on, panel by panel; `full` gets the bytes of all. Each of
// kCluster CTAs loads its share of the rows into the shared memory of all.
template <bool kRagged, int kHeadDim, int kRows, int kCluster = 1>
FA3_DEV void load_tile(u8* to, const TensorMap& map, Barrier& full, const FwdSource& from, i32 row,
                       ptx::L2Hint hint, Where where = Where::here()) {
  constexpr i32 kColumns = static_cast<i32>(FwdConfig::swizzle_of(kHeadDim)) / 2;
  constexpr u32 kPanels = FwdConfig::row_bytes(kHeadDim) / (2 * kColumns);
  constexpr u32 kPanelBytes = kRows * 2 * kColumns;
  [[maybe_unused]] constexpr u16 kAll = (1 << kCluster) - 1;
  const u32 share = kCluster == 1 ? 0 : kRows / kCluster * ptx::cluster_rank();
  full.arrive_expect_tx(kPanels * kPanelBytes, where);
  const u32 address = ptx::smem_address(to) + share * 2 * kColumns, bar = full.address();
  row += static_cast<i32>(share);
  FA3_UNROLL
  for (u32 panel = 0; panel < kPanels; ++panel) {
    const u32 at = address + panel * kPanelBytes;
    const i32 column = kColumns * static_cast<i32>(panel);
    const i32 x = kRaggedRows - from.rows + row, y = from.begin + from.rows, z = kRaggedRows;
    if constexpr (kRagged && kCluster == 1) {
      ptx::tma_load_5d(at, map, bar, column, x, y, z, from.head, hint);
    } else if constexpr (kRagged) {
      ptx::tma_load_multicast_5d(at, map, bar, column, x, y, z, from.head, kAll, hint);
    } else if constexpr (kCluster == 1) {
      ptx::tma_load_4d(at, map, bar, column, row, from.head, from.batch, hint);
    } else {
      ptx::tma_load_multicast_4d(at, map, bar, column, row, from.head, from.batch, kAll, hint);
    }
  }
}

template <FwdConfig kCfg>
struct Producer {
  using Smem = FwdSmem<kCfg>;
  Smem& smem;
  const FwdArgs& args;
  Ring<kCfg.stages> k = Ring<kCfg.stages>::producer(), v = k;
  Ring<kCfg.q_stages> q = Ring<kCfg.q_stages>::producer();

  FA3_DEV void load_q(const FwdWork& work) {
    const FwdSource from{work.q_begin, work.q_rows, work.head, work.batch};
    FA3_NO_UNROLL
    for (u32 w = 0; w < kCfg.consumer_wgs; ++w) {
      const u32 at = q.stage * kCfg.consumer_wgs + w;
      smem.q_empty[at].wait(q.phase);
      load_tile<kCfg.ragged, kCfg.head_dim_qk, 64>(
          smem.q[at], args.q, smem.q_full[at], from,
          kCfg.tile_q() * work.tile + static_cast<i32>(64 * w), ptx::L2Hint::kEvictFirst);
    }
    q.advance();
  }
  FA3_DEV void load_k(const FwdSource& from, i32 tile) {
    smem.k_empty[k.stage].wait(k.phase);
    load_tile<kCfg.ragged, kCfg.head_dim_qk, kCfg.tile_kv, kCfg.cluster>(
        smem.k[k.stage], args.k, smem.k_full[k.stage], from, kCfg.tile_kv * tile,
        ptx::L2Hint::kEvictLast);
    k.advance();
  }
  FA3_DEV void load_v(const FwdSource& from, i32 tile) {
    smem.v_empty[v.stage].wait(v.phase);
    load_tile<kCfg.ragged, kCfg.head_dim_v, kCfg.tile_kv, kCfg.cluster>(
        smem.v[v.stage], args.v, smem.v_full[v.stage], from, kCfg.tile_kv * tile,
        ptx::L2Hint::kEvictLast);
    v.advance();
  }

  // Tells the L2 cache that a tile's Q will be asked for.
  FA3_DEV void prefetch_q(const FwdWork& work) {
    constexpr i32 kColumns = static_cast<i32>(kCfg.swizzle_qk()) / 2;
    FA3_NO_UNROLL
    for (i32 w = 0; w < kCfg.consumer_wgs; ++w) {
      FA3_UNROLL
      for (i32 panel = 0; panel * kColumns < kCfg.head_dim_qk; ++panel) {
        const i32 row = kCfg.tile_q() * work.tile + 64 * w;
        if constexpr (kCfg.ragged) {
          ptx::tma_prefetch_5d(args.q, panel * kColumns, kRaggedRows - work.q_rows + row,
                               work.q_begin + work.q_rows, kRaggedRows, work.head);
        } else {
          ptx::tma_prefetch_4d(args.q, panel * kColumns, row, work.head, work.batch);
        }
      }
    }
  }

  // K runs one tile ahead of V, as the consumers do; the first K does not wait for Q's room.
  // on_begin is called when the first loads are on their way, on_end before the last K.
  template <class OnBegin, class OnEnd>
  FA3_DEV void load(const FwdWork& work, bool with_q, const OnBegin& on_begin,
                    const OnEnd& on_end) {
    const FwdSource from = keys_of(work);
    const TileRange& range = work.range;
    if (!range.empty()) load_k(from, range.end - 1);
    if (with_q) load_q(work);
    if (range.end - 2 < range.first) on_end();
    FA3_NO_UNROLL
    for (i32 tile = range.end - 2; tile >= range.first; --tile) {
      if (tile == range.first) on_end();
      load_k(from, tile);
      load_v(from, tile + 1);
      if (tile == range.end - 2) on_begin();
    }
    if (!range.empty()) load_v(from, range.first);
    if (range.end - 2 < range.first) on_begin();
  }
  FA3_DEV FwdSource keys_of(const FwdWork& work) const {
    return {work.kv_begin, work.kv_used, work.head / args.group_size, work.batch};
  }
};

// 5a SCHEDULER: finds Q tiles and says which KV tiles they visit.
// What was published in a slot.
template <FwdConfig kCfg>
FA3_DEV FwdWork work_of(const FwdSmem<kCfg>& smem, u32 slot) {
  ptx::Words<FwdSharedWork::kWords> words;
  FA3_UNROLL
  for (int i = 0; i < FwdSharedWork::kWords; ++i) {
    words.word[i] = ptx::ld_shared(&smem.work[slot].word[i]);
  }
  return ptx::bits_as<FwdWork>(words);
}

template <FwdConfig kCfg>
FA3_DEV void publish(FwdSharedWork& to, const FwdArgs& args, const FwdWork& work) {
  const auto words = ptx::bits_as<ptx::Words<FwdSharedWork::kWords>>(work);
  FA3_UNROLL
  for (int i = 0; i < FwdSharedWork::kWords; ++i) ptx::st_shared(&to.word[i], words.word[i]);
  // Not unrolled: there are few registers.
  FA3_NO_UNROLL
  for (i32 w = 0; w < kCfg.consumer_wgs; ++w) {
    TileRange range = work.range;
    if constexpr (kCfg.skips()) {
      range = tile_range(args.band, work.q_used, work.kv_used, kCfg.tile_q() * work.tile + 64 * w,
                         64, kCfg.tile_kv);
    }
    ptx::st_shared(&to.wg_range[w][0], range.first);
    ptx::st_shared(&to.wg_range[w][1], range.plain_first);
    ptx::st_shared(&to.wg_range[w][2], range.plain_end);
    ptx::st_shared(&to.wg_range[w][3], range.end);
  }
}

// The whole warp; one tile ahead of the consumers.
template <FwdConfig kCfg>
FA3_DEV void schedule(FwdSmem<kCfg>& smem, const FwdArgs& args) {
  FwdTiles<kCfg> tiles(args);
  auto slot = Ring<kCfg.work_slots()>::producer();
  bool more = true;
  FA3_NO_UNROLL
  for (; more; slot.advance()) {
    smem.work_empty[slot.stage].wait(slot.phase);
    const FwdWork work = tiles.next();
    more = work.tile >= 0;
    if (ptx::lane_index() == 0) {
      publish<kCfg>(smem.work[slot.stage], args, work);
      smem.work_full[slot.stage].arrive();
    }
  }
}

template <FwdConfig kCfg>
FA3_DEV void produce(FwdSmem<kCfg>& smem, const FwdArgs& args) {
  // A fixed schedule says early what comes next: the next Q is loaded when work on this one begins,
  // where there is room, else the cache is told of it. A dynamic one is asked late, when all other
  // CTAs have had their chance.
  constexpr bool kLate = kCfg.schedule == FwdSchedule::kDynamic;
  constexpr bool kLoadsAhead = kCfg.q_stages == 2 && !kLate;
  Producer<kCfg> producer{smem, args};
  Ring<kCfg.work_slots()> slot;
  u32 done = 0;  // slot of the work before
  smem.work_full[0].wait(0);
  FA3_NO_UNROLL
  for (bool first = true; smem.work[slot.stage].is_tile(); first = false) {
    const auto next = slot.next();
    const auto release = [&] {
      if (!first) smem.work_empty[done].arrive();
    };
    const auto look_ahead = [&] {
      smem.work_full[next.stage].wait(next.phase);
      if (!smem.work[next.stage].is_tile()) return;
      const FwdWork work = work_of(smem, next.stage);
      kLoadsAhead ? producer.load_q(work) : producer.prefetch_q(work);
    };
    producer.load(
        work_of(smem, slot.stage), first || !kLoadsAhead,
        [&] {
          if constexpr (!kLate) release(), look_ahead();
        },
        [&] {
          if constexpr (kLate) release();
        });
    if constexpr (kLate) smem.work_full[next.stage].wait(next.phase);
    done = slot.stage;
    slot = next;
  }
}

}  // namespace fa3::sm90
