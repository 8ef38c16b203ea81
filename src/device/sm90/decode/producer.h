// SPDX-License-Identifier: BSD-3-Clause
// producer.h — a thread of the decode kernel that loads K and V by TMA, as soon as stages are
// empty; where these lie in a cache, one warp or four, each lane some runs of keys.
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/warp.h"
#include "device/sm90/append/piece.h"
#include "device/sm90/common/kv_runs.h"
#include "device/sm90/common/tile_load.h"
#include "device/sm90/decode/smem.h"
#include "device/sm90/decode/unit.h"

namespace fa3::sm90 {

// New keys of KV tiles, by a warp before it loads them. What TMA then reads has been stored by its
// own warp: lanes fence what they have stored, and hand it on.
template <DecodeConfig kCfg>
struct NewKeys {
  static constexpr AppendConfig kAppend{
      kCfg.dtype, kCfg.dtype == MmaType::kF16 ? FloatType::kF16 : FloatType::kBf16};
  // Pieces of a lane on their way: of two CTAs on an SM each has half of the registers.
  static constexpr int kAtATime = kCfg.ctas_per_sm > 1 ? 1 : 2;
  const DecodeArgs& args;

  FA3_DEV bool in_tile(const DecodeUnit& unit, i32 tile) const {
    const i32 first = kCfg.tile_kv * tile;
    return first + kCfg.tile_kv > unit.before && first < unit.kv.used;
  }
  FA3_DEV void store_k(const DecodeUnit& unit, i32 tile) const {
    const DecodeAppend& a = args.append;
    store(unit, tile, a.k_new, a.k, a.rotated, args.head_dim_qk - 2 * a.rotated);
  }
  FA3_DEV void store_v(const DecodeUnit& unit, i32 tile) const {
    const DecodeAppend& a = args.append;
    store(unit, tile, a.v_new, a.v, 0, a.head_dim_v);
  }
  FA3_DEV static void hand_on() {
    ptx::fence_proxy_async_global();  // sim:spare(copies)
    ptx::warp_sync();                 // sim:spare(meets)
  }

 private:
  FA3_DEV void store(const DecodeUnit& unit, i32 tile, const AppendTensor& from,
                     const AppendTensor& to, i32 rotated, i32 copied) const {
    const i32 first = max(kCfg.tile_kv * tile, unit.before);
    const i32 end = min(kCfg.tile_kv * (tile + 1), unit.kv.used);
    const i32 pieces = (rotated + copied) / kAppendPiece, all = (end - first) * pieces;
    FA3_NO_UNROLL
    for (i32 begin = 0; begin < all; begin += 32 * kAtATime) {
      WidePiece<kAppend> piece[kAtATime];
      u16* target[kAtATime];
      FA3_UNROLL
      for (int u = 0; u < kAtATime; ++u) {
        const i32 item = begin + 32 * u + static_cast<i32>(ptx::lane_index());
        target[u] = nullptr;
        if (item >= all) continue;
        const i32 of_tile = item / pieces, i = first + of_tile - unit.before;
        target[u] = place_of(unit, to, first + of_tile);
        piece[u].load(args.append.table, at(from, unit.batch, i, unit.kv_head), rotated,
                      item - of_tile * pieces,
                      rotary_position(args.append.table, unit.batch, unit.before, i));
      }
      FA3_UNROLL
      for (int u = 0; u < kAtATime; ++u)
        if (target[u] != nullptr) piece[u].store(args.append.table, target[u]);
    }
  }
  // Where a key of the sequence lies; null: nowhere.
  FA3_DEV u16* place_of(const DecodeUnit& unit, const AppendTensor& to, i32 key) const {
    i32 entry = unit.batch, row = key;
    if constexpr (kCfg.cached()) {
      const KvCacheArgs& cache = args.shape.cache;
      entry = cache.entry_of(unit.batch, unit.kv.begin + key);
      if (!cache.has(entry)) return nullptr;
      row = cache.row_of(unit.kv.begin + key);
    }
    return at(to, entry, row, unit.kv_head);
  }
  FA3_DEV static u16* at(const AppendTensor& x, i32 entry, i32 row, i32 head) {
    return reinterpret_cast<u16*>(x.data) + (entry * x.batch + row * x.row + head * x.head);
  }
};

template <DecodeConfig kCfg>
struct DecodeProducer;

template <DecodeConfig kCfg>
requires(!kCfg.cached()) struct DecodeProducer<kCfg> {
  DecodeSmem<kCfg>& smem;
  const DecodeArgs& args;
  Ring<kCfg.stages> ring = Ring<kCfg.stages>::producer();

  // KV tiles [first, end) of a unit, by all lanes. Each is read once: it is the first to leave L2.
  FA3_DEV void run(const DecodeUnit& unit, i32 first, i32 end) {
    if constexpr (kCfg.appends) {
      const NewKeys<kCfg> fresh{args};
      FA3_NO_UNROLL
      for (i32 at = first; at < end; ++at) {
        const i32 tile = tile_in_turn<kCfg>(at, first, end);
        if (fresh.in_tile(unit, tile)) {
          fresh.store_k(unit, tile);
          fresh.store_v(unit, tile);
          fresh.hand_on();
        }
        if (ptx::elect_one()) load(unit, tile, tile + 1);
        ptx::warp_sync();  // sim:spare(converge)
      }
    } else {
      if (ptx::elect_one()) load(unit, first, end);
      ptx::warp_sync();  // sim:spare(converge)
    }
  }

 private:
  FA3_DEV void load(const DecodeUnit& unit, i32 first, i32 end) {
    const HeadRows from{unit.kv.begin, unit.kv.used, unit.kv_head, unit.batch};
    FA3_NO_UNROLL
    for (i32 at = first; at < end; ++at) {
      const i32 row = kCfg.tile_kv * tile_in_turn<kCfg>(at, first, end);
      smem.k_empty[ring.stage].wait(ring.phase);  // sim:spare(one_tile)
      load_tile<kCfg.ragged, kCfg.k_tile()>(smem.k[ring.stage], args.k, smem.k_full[ring.stage],
                                            from, row, ptx::L2Hint::kEvictFirst);
      smem.v_empty[ring.stage].wait(ring.phase);  // sim:spare(one_tile)
      load_tile<kCfg.ragged, kCfg.v_tile()>(smem.v[ring.stage], args.v, smem.v_full[ring.stage],
                                            from, row, ptx::L2Hint::kEvictFirst);
      ring.advance();
    }
  }
};

// Four warps: the first and the third load K, the others V, each pair every other tile, so that two
// tiles' places are looked up and their rows asked for side by side. One warp: all.
template <DecodeConfig kCfg>
requires(kCfg.cached()) struct DecodeProducer<kCfg> {
  static constexpr bool kAlone = kCfg.producer_warps() == 1;
  static constexpr u32 kPairs = kAlone ? 1 : 2;
  static_assert(kCfg.stages >= static_cast<int>(kPairs), "else a pair misses a phase of a stage");
  // Rows' places take many registers, of which two wide consumers leave few.
  static constexpr bool kLooksAhead = kCfg.kv != KvSource::kRows || kCfg.producer_registers() == 0;

  DecodeSmem<kCfg>& smem;
  const DecodeArgs& args;
  const u32 warp = ptx::warp_index() - kCfg.consumer_warps();
  Ring<kCfg.stages> ring = Ring<kCfg.stages>::producer();
  u32 turn = 0;  // the pair that loads the next tile
  KvRuns<kCfg.kv, kCfg.tile_kv, kLooksAhead ? kPairs : 0> runs{args.shape.cache};

  FA3_DEV void run(const DecodeUnit& unit, i32 first, i32 end) {
    runs.begin(unit.batch, unit.kv);
    FA3_NO_UNROLL
    for (i32 at = first; at < end; ++at) {
      if (kAlone || turn == warp / 2) {
        const i32 tile = tile_in_turn<kCfg>(at, first, end);
        if constexpr (kCfg.appends) store_new(unit, tile);
        load(unit.kv_head, tile);
      }
      turn = (turn + 1) % kPairs;
      ring.advance();
    }
  }

 private:
  FA3_DEV void store_new(const DecodeUnit& unit, i32 tile) const {
    const NewKeys<kCfg> fresh{args};
    if (!fresh.in_tile(unit, tile)) return;
    if (kAlone || warp % 2 == 0) fresh.store_k(unit, tile);
    if (kAlone || warp % 2 == 1) fresh.store_v(unit, tile);
    fresh.hand_on();
  }
  FA3_DEV void load(i32 kv_head, i32 tile) {
    constexpr ptx::L2Hint kHint = ptx::L2Hint::kEvictFirst;
    const u32 stage = ring.stage;
    runs.find(tile);
    if (kAlone || warp % 2 == 0) {
      smem.k_empty[stage].wait(ring.phase);  // sim:spare(one_tile)
      const bool hides = runs.hides();
      if (ptx::lane_index() == 0) ptx::st_shared(&smem.hides[stage], hides ? 1 : 0);
      runs.template load<kCfg.k_tile()>(smem.k[stage], smem.k_full[stage], args.k, args.k_places,
                                        kv_head, tile, kHint);
    }
    if (kAlone || warp % 2 == 1) {
      smem.v_empty[stage].wait(ring.phase);  // sim:spare(one_tile)
      runs.template load<kCfg.v_tile()>(smem.v[stage], smem.v_full[stage], args.v, args.v_places,
                                        kv_head, tile, kHint);
    }
    if constexpr (kLooksAhead) {
      const i32 step = kCfg.part_tiles > 0 ? -i32{kPairs} : i32{kPairs};
      if (kCfg.part_tiles == 0 || tile + step >= 0) runs.look_ahead(tile + step);
    }
  }
};

}  // namespace fa3::sm90
