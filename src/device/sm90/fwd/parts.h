// SPDX-License-Identifier: BSD-3-Clause
// parts.h — the forward in parts of a fixed number of keys (common/key_parts.h): the order of a Q
// tile's KV tiles, each part as if it were all, and what O of the parts so far waits in: memory of
// the workspace where each thread has places of its own, so that nobody is waited for.
#pragma once

#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/vec.h"
#include "device/sm90/common/key_parts.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/o_groups.h"
#include "device/types.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// Algorithm 2 for one part after the other.
struct ByParts {
  template <class Consumer>
  FA3_DEV void attend(Consumer& c) {
    constexpr i32 kTiles = Consumer::kConfig.accumulate.part_tiles;
    TileRange& own = c.visit.own;
    const TileRange all = own;
    FA3_NO_UNROLL
    while (true) {
      own.first = max((own.end - 1) / kTiles * kTiles, all.first);
      own.unmasked_first = max(all.unmasked_first, own.first);
      own.unmasked_end = max(all.unmasked_end, own.first);
      c.first_step(own.end - 1);
      c.template for_kv_tiles<false>(own.end - 2,
                                     [&](i32 kv_tile, auto masked) { c.step(kv_tile, masked); });
      if (own.first == all.first) break;
      c.pv.end_part(c);
      c.turn.wait();  // each tile but a consumer's first takes a ping-pong turn
      c.turn.pass();
      own.end = own.first;
    }
    c.release_q();
    c.last_pv();
  }
};

template <FwdConfig kCfg>
struct PartedO : OGroups<kCfg> {
  using Groups = OGroups<kCfg>;
  using Groups::kGroup, Groups::kGroups;
  using typename Groups::Group, typename Groups::OAcc;

  RowTotal total[2];
  FoldWeights weights[2];
  bool any;  // whether there is a part in memory

  FA3_DEV void reset() { any = false; }

  // The rows' totals become those of all parts.
  template <class C>
  FA3_DEV void join(C& c) {
    auto& softmax = c.tile.softmax;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      const RowTotal part{softmax.max[h], softmax.sum[h]};
      const PerRow scale_log2 = c.scores.scale_log2(c.args);
      if (any) {
        weights[h] = fold(total[h], part, scale_log2[h]);
        softmax.set_row(h, total[h].max, total[h].sum, scale_log2);
      } else {
        total[h] = part;
      }
    }
  }
  // O becomes that of all parts.
  template <class C>
  FA3_DEV void add(const C& c, OAcc& o) const {
    if (!any) return;
    FA3_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const Group x = ptx::ld_global(place(c) + g * kWgThreads);
      FA3_UNROLL
      for (int i = 0; i < kGroup; ++i)
        o[kGroup * g + i] = fold(x[i], o[kGroup * g + i], weights[i / 2]);
    }
  }
  template <class C>
  FA3_DEV void keep(const C& c, const OAcc& o) {
    FA3_UNROLL
    for (int g = 0; g < kGroups; ++g)
      ptx::st_global(place(c) + g * kWgThreads, Groups::group(o, g));
    any = true;
  }

 private:
  // This thread's; its next groups are kWgThreads further on each.
  template <class C>
  FA3_DEV static Group* place(const C& c) {
    const u64 slot = u64{ptx::block_index_x()} * kCfg.tile.consumer_wgs + c.wg;
    return reinterpret_cast<Group*>(c.args.part_o) + slot * (kGroups * kWgThreads) +
           ptx::thread_index() % kWgThreads;
  }
};

}  // namespace fa3::sm90
