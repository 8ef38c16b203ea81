// SPDX-License-Identifier: BSD-3-Clause
// producer.h — a thread of the decode kernel that loads K and V by TMA, as soon as stages are
// empty; where these lie in a cache, one warp or four, each lane some runs of keys.
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/barrier.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/kv_runs.h"
#include "device/sm90/common/tile_load.h"
#include "device/sm90/decode/smem.h"
#include "device/sm90/decode/unit.h"

namespace fa3::sm90 {

template <DecodeConfig kCfg>
struct DecodeProducer;

template <DecodeConfig kCfg>
requires(!kCfg.cached()) struct DecodeProducer<kCfg> {
  DecodeSmem<kCfg>& smem;
  const DecodeArgs& args;
  Ring<kCfg.stages> ring = Ring<kCfg.stages>::producer();

  // KV tiles [first, end) of a unit, by all lanes. Each is read once: it is the first to leave L2.
  FA3_DEV void run(const DecodeUnit& unit, i32 first, i32 end) {
    if (ptx::elect_one()) load(unit, first, end);
    ptx::warp_sync();  // sim:spare(converge)
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
      if (kAlone || turn == warp / 2) load(unit.kv_head, tile_in_turn<kCfg>(at, first, end));
      turn = (turn + 1) % kPairs;
      ring.advance();
    }
  }

 private:
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
