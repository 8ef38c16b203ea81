// SPDX-License-Identifier: BSD-3-Clause
// scheduler.h — the forward kernel's scheduler: which Q tile a CTA works on
// next, and which KV tiles it visits. One warp, all lanes alike; the other
// roles get the result through shared memory.
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/q_tiles.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/missing.h"
#include "device/sm90/fwd/smem.h"
#include "device/warp/element.h"
#include "device/warp/mask_tensor.h"

namespace fa3::sm90 {

template <FwdConfig kCfg>
FA3_DEV void publish(FwdSharedWork& to, const FwdArgs& args, const FwdWork& work) {
  const auto words = ptx::bits_as<ptx::Words<FwdSharedWork::kWords>>(work);
  FA3_UNROLL
  for (int i = 0; i < FwdSharedWork::kWords; ++i) ptx::st_shared(&to.word[i], words.word[i]);
  ptx::st_shared(&to.sink, work.tile < 0 ? -kInf : args.sinks.of_head(work.head));
  // Not unrolled: the scheduler has few registers.
  FA3_NO_UNROLL
  for (i32 w = 0; w < kCfg.tile.consumer_wgs; ++w) {
    TileRange range = work.range;
    if constexpr (kCfg.skips()) {
      range = tile_range(args.template band<kCfg.mask.kind>(), work.q_used, work.kv_used,
                         kCfg.tile.q() * work.tile + kWgRows * w, kWgRows, kCfg.tile.kv);
    }
    ptx::st_shared(&to.wg_range[w][0], range.first);
    ptx::st_shared(&to.wg_range[w][1], range.unmasked_first);
    ptx::st_shared(&to.wg_range[w][2], range.unmasked_end);
    ptx::st_shared(&to.wg_range[w][3], range.end);
  }
}

// Run by the whole warp. A CTA claims its next Q tile when the producer is
// about to load the last K of this one: late enough for all other CTAs to have
// had their chance, early enough to have the answer when the last loads are in
// flight.
template <FwdConfig kCfg, class Mask>
FA3_DEV void schedule(FwdSmem<kCfg>& smem, const FwdArgs& args) {
  constexpr bool kOneTile = kCfg.overlap.schedule == FwdSchedule::kOneTile;
  QTiles<kCfg, kOneTile, FwdArgs> tiles(args);
  auto slot = Ring<FwdConfig::kWorkSlots>::producer();
  Ring<1> claim = Ring<1>::producer();  // the first tile is taken at once
  bool more = true;
  FA3_NO_UNROLL
  for (; more; slot.advance(), claim.advance()) {
    if constexpr (!kOneTile) smem.claim.wait(claim.phase);
    smem.work_empty[slot.stage].wait(slot.phase);  // sim:spare(one_tile)
    // Lanes that lane 0 left behind could find a later phase with the same
    // parity (ABA).
    ptx::warp_sync();  // sim:spare(lagging)
    FwdWork work = tiles.next();
    more = work.tile >= 0;
    if constexpr (Mask::kActive) {
      static_assert(!kCfg.skips(), "mask functors: their tiles are those of all consumers");
      if (more) {
        work.range =
            Mask::template tiles<kCfg.tile.kv>(args.elements, place_of(args, work), work.range,
                                               kCfg.tile.q() * work.tile, kCfg.tile.q());
      }
    }
    if constexpr (kCfg.mask.has_tensor()) {
      static_assert(!kCfg.skips());
      if (more) work.range = shown_range(args.mask, work.batch, work.head, work.tile, work.range);
    }
    if (ptx::lane_index() == 0) {
      publish<kCfg>(smem.work[slot.stage], args, work);
      smem.work_full[slot.stage].arrive();
    }
    if constexpr (kCfg.load.cached()) {
      const bool misses = more && finds_missing<kCfg>(args.cache, work);
      if (ptx::lane_index() == 0) {
        ptx::st_shared(&smem.pages.missing[slot.stage], misses ? 1u : 0u);
        smem.pages.known[slot.stage].arrive();
      }
    }
  }
}

}  // namespace fa3::sm90
