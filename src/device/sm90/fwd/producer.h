// SPDX-License-Identifier: BSD-3-Clause
// producer.h — the forward kernel's producers: a thread that loads Q, K and V by TMA, each tile as
// soon as its stage is empty, or two, one of them for V (FwdConfig::v_producer). From a cache they
// are warps, whose lanes load K and V together; lane 0 does all else.
#pragma once

#include "device/attn/tile_range.h"
#include "device/hopper/ring.h"
#include "device/ptx/async_copy.h"
#include "device/ptx/bulk.h"
#include "device/sm90/common/kv_runs.h"
#include "device/sm90/common/tile_load.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/smem.h"

namespace fa3::sm90 {

// kOfV: of V alone; else of all that has no other producer.
template <FwdConfig kCfg, bool kOfV = false>
struct Producer {
  using Smem = FwdSmem<kCfg>;
  Smem& smem;
  const FwdArgs& args;
  Ring<kCfg.tile.stages> k = Ring<kCfg.tile.stages>::producer(), v = k;
  Ring<kCfg.tile.q_stages> q = Ring<kCfg.tile.q_stages>::producer();
  using RawRing = Ring<max(kCfg.load.raw_v_stages, 1)>;
  RawRing raw_v = RawRing::producer();
  using MaskRing = Ring<max(kCfg.mask.stages, 1)>;
  MaskRing mask = MaskRing::producer();

  FA3_DEV void load_q(const FwdWork& work) {
    if (!leads()) return;
    const HeadRows from{work.q_begin, work.q_rows, work.head, work.batch};
    FA3_NO_UNROLL
    for (u32 w = 0; w < kCfg.tile.consumer_wgs; ++w) {
      const u32 at = q.stage * kCfg.tile.consumer_wgs + w;
      smem.q_empty[at].wait(q.phase);  // sim:spare(one_tile)
      load_tile<kCfg.load.ragged, kCfg.q_tile()>(
          smem.q[at], args.q, smem.q_full[at], from,
          kCfg.tile.q() * work.tile + static_cast<i32>(kWgRows * w), ptx::L2Hint::kEvictFirst);
    }
    q.advance();
  }
  FA3_DEV void load_k(const HeadRows& from, i32 tile) {
    smem.k_empty[k.stage].wait(k.phase);
    load_tile<kCfg.load.ragged, kCfg.k_tile()>(smem.k[k.stage], args.k, smem.k_full[k.stage], from,
                                               kCfg.tile.kv * tile, ptx::L2Hint::kEvictLast);
    k.advance();
  }
  FA3_DEV void load_v(const HeadRows& from, i32 tile) requires(!kCfg.transposes()) {
    smem.v_empty[v.stage].wait(v.phase);
    load_tile<kCfg.load.ragged, kCfg.v_tile()>(smem.v[v.stage], args.v, smem.v_full[v.stage], from,
                                               kCfg.tile.kv * tile, ptx::L2Hint::kEvictLast);
    v.advance();
  }
  // Keys of a KV head in a cache; all lanes.
  struct CachedKeys {
    KvRuns<kCfg.load.kv, kCfg.tile.kv, 0> runs;
    i32 head;
  };
  FA3_DEV void load_k(CachedKeys& from, i32 tile) {
    from.runs.find(tile);
    smem.k_empty[k.stage].wait(k.phase);
    from.runs.template load<kCfg.k_tile()>(smem.k[k.stage], smem.k_full[k.stage], args.k,
                                           args.k_places, from.head, tile, ptx::L2Hint::kEvictLast);
    k.advance();
  }
  FA3_DEV void load_v(CachedKeys& from, i32 tile) {
    from.runs.find(tile);
    smem.v_empty[v.stage].wait(v.phase);
    from.runs.template load<kCfg.v_tile()>(smem.v[v.stage], smem.v_full[v.stage], args.v,
                                           args.v_places, from.head, tile, ptx::L2Hint::kEvictLast);
    v.advance();
  }
  // Tiles [first, end) of V that was transposed before, the last one first.
  FA3_DEV void load_v_image(const HeadRows& from, i32 first, i32 end) {
    constexpr int kBytes = kCfg.v_bytes();
    const i64 begin = args.v_image.first_tile(from.batch, from.head, from.begin, kCfg.tile.kv);
    const u8* tile = args.v_image.data + (begin + end) * kBytes;
    FA3_NO_UNROLL
    for (; end > first; --end) {
      tile -= kBytes;
      Barrier& full = smem.v_full[v.stage];
      smem.v_empty[v.stage].wait(v.phase);
      full.arrive_expect_tx(kBytes);
      ptx::bulk_load(ptx::smem_address(smem.v[v.stage]), tile, kBytes, full.address());
      v.advance();
    }
  }
  // For the transposers.
  FA3_DEV void load_v(const HeadRows& from, i32 tile) requires(kCfg.transposes()) {
    smem.raw_v_empty[raw_v.stage].wait(raw_v.phase);
    load_tile<kCfg.load.ragged, kCfg.v_tile()>(smem.side[raw_v.stage], args.v,
                                               smem.raw_v_full[raw_v.stage], from,
                                               kCfg.tile.kv * tile, ptx::L2Hint::kEvictLast);
    raw_v.advance();
  }

  // attn_mask's elements for a KV tile. Where it is the same for all heads, it has one.
  FA3_DEV void load_mask(const FwdWork& work, i32 tile) {
    constexpr TileLayout kTile = kCfg.mask_tile();
    if (!leads()) return;
    const i32 head = args.mask.head == 0 ? 0 : work.head;
    const i32 batch = args.mask.batch == 0 ? 0 : work.batch;
    FA3_NO_UNROLL
    for (u32 w = 0; w < kCfg.tile.consumer_wgs; ++w) {
      const u32 at = mask.stage * kCfg.tile.consumer_wgs + w;
      smem.mask_empty[at].wait(mask.phase);
      load_tile<false, kTile>(smem.side[at], args.mask_map, smem.mask_full[at], {0, 0, head, batch},
                              kCfg.tile.q() * work.tile + static_cast<i32>(kWgRows * w),
                              ptx::L2Hint::kEvictFirst, kCfg.tile.kv * tile);
    }
    mask.advance();
  }

  FA3_DEV static bool leads() {
    if constexpr (kCfg.load.cached()) return ptx::lane_index() == 0;
    return true;
  }
  FA3_DEV void claim() {
    if (leads()) smem.claim.arrive();
  }

  // K runs one tile ahead of V, as in the consumers; the first K does not wait for Q's buffer.
  // The next Q tile is claimed before the last K.
  FA3_DEV void load(const FwdWork& work) requires(!kOfV) {
    auto from = keys_of(work);
    const TileRange& range = work.range;
    constexpr bool kLoadsV = !kCfg.v_producer();
    if (!range.empty()) load_k(from, range.end - 1);
    load_q(work);
    if constexpr (kCfg.mask.has_tensor()) return load_shown(work, from);
    if (range.end - 2 < range.first) claim();
    FA3_NO_UNROLL
    for (i32 tile = range.end - 2; tile >= range.first; --tile) {
      if (tile == range.first) claim();
      if constexpr (kCfg.transposes()) load_v(from, tile + 1);  // which has further to go
      load_k(from, tile);
      if constexpr (kLoadsV && !kCfg.transposes()) load_v(from, tile + 1);
    }
    if (kLoadsV && !range.empty()) load_v(from, range.first);
  }
  FA3_DEV void load(const FwdWork& work) requires(kOfV) {
    auto from = keys_of(work);
    const TileRange& range = work.range;
    if constexpr (kCfg.load.v_image) {
      load_v_image(from, range.first, range.end);
    } else {
      FA3_NO_UNROLL
      for (i32 tile = range.end - 1; tile >= range.first; --tile) load_v(from, tile);
    }
  }
  // The same without the KV tiles that attn_mask hides. The first and the last are shown.
  FA3_DEV void load_shown(const FwdWork& work, auto& from) {
    const TileRange& range = work.range;
    if (range.empty()) return claim();
    ShownTiles<false> tiles;
    tiles.begin(args.mask, work.batch, work.head, work.tile, range.end - 1);
    i32 behind = range.end - 1;  // whose V is due
    const auto load_added = [&](i32 tile) {
      if constexpr (kCfg.mask.stages > 0) {
        if (args.mask.by_tma && tiles.adds(tile)) load_mask(work, tile);
      }
    };
    if (behind == range.first) claim();
    load_added(behind);
    FA3_NO_UNROLL
    while (behind > range.first) {
      const i32 tile = tiles.before(behind, range.first);
      if (tile == range.first) claim();
      load_k(from, tile);
      load_v(from, behind);
      load_added(tile);  // whose place is empty when S of the tile before has been added to
      behind = tile;
    }
    load_v(from, behind);
  }
  // Of the slot of work: consumers wait for Q before they release it, not for V.
  FA3_DEV void release(Barrier&) requires(!kOfV) {}
  FA3_DEV void release(Barrier& work_empty) requires(kOfV) {
    if constexpr (kCfg.load.cached()) ptx::warp_sync();
    if (leads()) work_empty.arrive();
  }
  FA3_DEV HeadRows keys_of(const FwdWork& work) const requires(!kCfg.load.cached()) {
    return {work.kv_begin, work.kv_used, work.head / args.group_size, work.batch};
  }
  FA3_DEV CachedKeys keys_of(const FwdWork& work) const requires(kCfg.load.cached()) {
    ptx::warp_sync();  // all have read the work, whose slot is released when Q is there
    CachedKeys keys{KvRuns<kCfg.load.kv, kCfg.tile.kv, 0>(args.cache), work.head / args.group_size};
    keys.runs.begin(work.batch, {work.kv_begin, work.kv_used, work.kv_used});
    return keys;
  }
};

// Whether the lane takes part: one of a warp, or from a cache all.
template <FwdConfig kCfg>
FA3_DEV bool produces() {
  if constexpr (kCfg.load.cached()) return true;
  return ptx::elect_one();
}

template <FwdConfig kCfg, bool kOfV = false>
FA3_DEV void produce(FwdSmem<kCfg>& smem, const FwdArgs& args) {
  Producer<kCfg, kOfV> producer{smem, args};
  Ring<FwdConfig::kWorkSlots> slot;
  FA3_NO_UNROLL
  for (;; slot.advance()) {
    smem.work_full[slot.stage].wait(slot.phase);
    if (!smem.work[slot.stage].is_tile()) {
      if constexpr (kCfg.load.kv == KvSource::kRows) ptx::cp_async_wait_all();
      return;
    }
    const FwdWork work = smem.work[slot.stage].read();
    producer.release(smem.work_empty[slot.stage]);
    producer.load(work);
  }
}

}  // namespace fa3::sm90
