// SPDX-License-Identifier: BSD-3-Clause
// finder.h — with attn_mask or sequence ids, a warp beside the producer finds the Q tiles of which
// some query sees some key, and hands them to the other roles: the producer and the dQ writers,
// and by way of a full Q the consumers.
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

// Of a tile's rows.
struct IdRange {
  i32 least, greatest;

  // Of `rows` from the first on, of which so many exist, at least one. Whole warp.
  template <i32 kRows>
  FA3_DEV static IdRange of(const i32* ids, i32 exist) {
    const i32 last = min(kRows, exist) - 1, lane = static_cast<i32>(ptx::lane_index());
    IdRange range{ptx::ld_global_nc(ids + min(lane, last)), 0};
    range.greatest = range.least;
    FA3_UNROLL
    for (i32 i = 32; i < kRows; i += 32) {
      const i32 id = ptx::ld_global_nc(ids + min(i + lane, last));
      range.least = min(range.least, id), range.greatest = max(range.greatest, id);
    }
    return {ptx::redux_min_i32(range.least), ptx::redux_max_i32(range.greatest)};
  }
};

// Run by the whole warp, which looks at 32 tiles at a time.
template <BwdConfig kCfg>
struct BwdFinder {
  BwdSmem<kCfg>& smem;
  const BwdArgs& args;
  const BwdWork& work;
  IdRange ids{};  // with sequence ids: the keys'
  Ring<kBwdSteps> steps = Ring<kBwdSteps>::producer();

  // A tile is handed over once it is known whether there is another one.
  FA3_DEV void run() {
    if constexpr (kCfg.functors) {
      if (args.ids_kv != nullptr)
        ids = IdRange::of<kCfg.cluster_kv()>(args.ids_kv + work.batch * args.id_kv_batch +
                                                 first_row(args.kv_axis, work.kv) +
                                                 work.cluster_key<kCfg>(),
                                             work.kv.used - work.cluster_key<kCfg>());
    }
    BwdStep found = BwdStep::none();
    FA3_NO_UNROLL
    for (i32 h = 0; h < args.group_size; ++h) {
      const i32 head = BwdCta<kCfg>::head_kv(args) * args.group_size + h;
      FA3_NO_UNROLL
      for (i32 first = work.range.first; first < work.range.end; first += 32) {
        u32 tiles = shown(head, first);
        FA3_NO_UNROLL
        for (; tiles != 0; tiles &= tiles - 1) {
          if (!found.is_none()) hand_over(found);
          found = {head, first + 31 - ptx::clz(tiles & (0 - tiles)), false};
        }
      }
    }
    found.last = true;
    hand_over(found);
  }

 private:
  FA3_DEV void hand_over(const BwdStep& step) {
    if (ptx::lane_index() == 0) {
      smem.steps_empty[steps.stage].wait(steps.phase);
      ptx::st_shared(&smem.steps[steps.stage], step.word());
      smem.steps_full[steps.stage].arrive();
    }
    steps.advance();
  }

  // Of 32 tiles from `first` on, that in the lowest bit.
  FA3_DEV u32 shown(i32 head, i32 first) const {
    const i32 left = work.range.end - first;
    u32 tiles = left < 32 ? ~(~0u << left) : ~0u;
    const i32 of_lane = first + min(static_cast<i32>(ptx::lane_index()), left - 1);
    if constexpr (kCfg.functors) {
      if (args.ids_kv != nullptr) tiles &= with_an_id(head, of_lane);
    }
    if constexpr (kCfg.has_mask()) tiles &= with_a_key(head, of_lane);
    return tiles;
  }

  // Of the CTA; kept in registers, they would be more than there are.
  FA3_DEV static i32 batch() { return BwdCta<kCfg>::batch(); }
  FA3_DEV i32 kv_tile() const { return BwdCta<kCfg>::first_kv_tile(args); }
  // Of the cluster, those that hold keys.
  FA3_DEV i32 kv_tiles() const {
    if constexpr (kCfg.cluster() == 1) return 1;
    return min((args.kv_rows - 1) / kCfg.tile_kv() - kv_tile() + 1, kCfg.cluster());
  }

  // Tiles with an id between the least and the greatest of the keys.
  FA3_DEV u32 with_an_id(i32 head, i32 tile) const {
    // In 32 bits, which number all tiles that memory holds: there are no registers for more.
    const u32 index =
        static_cast<u32>(tile + args.tiles.first(batch(), head, work.q.begin, kCfg.tile_q));
    const float* const stats = args.stats + u64{index} * kCfg.row_floats();
    const auto of_tile =
        ptx::ld_global(reinterpret_cast<const ptx::Vec<i32, 2>*>(stats + kCfg.id_range_at()));
    return ptx::ballot(of_tile[0] <= ids.greatest && of_tile[1] >= ids.least);
  }

  // Tiles that attn_mask does not hide.
  FA3_DEV u32 with_a_key(i32 head, i32 tile) const {
    bool shows = false;
    if constexpr (kCfg.adds_mask()) {
      static_assert(kCfg.tile_q == kMaskImageRows, "a block of the image");
      FA3_UNROLL
      for (i32 i = 0; i < kCfg.tile_kv() * kv_tiles(); i += kMaskImageRows)
        shows = shows || args.image.shows(batch(), head, tile,
                                          (kCfg.tile_kv() * kv_tile() + i) / kMaskImageRows);
    } else {
      const MaskTensorArgs& mask = args.mask;
      const MaskTiles* const at = mask.tiles + batch() * mask.tiles_batch + head * mask.tiles_head +
                                  tile * mask.tiles_q + kv_tile() / 32 * mask.step;
      const u32 of_cluster = (1u << kv_tiles()) - 1;
      shows =
          (ptx::ld_global(reinterpret_cast<const u32*>(at)) >> (kv_tile() % 32) & of_cluster) != 0;
    }
    return ptx::ballot(shows);
  }
};

}  // namespace fa3::sm90
