// SPDX-License-Identifier: BSD-3-Clause
// visits.h — the Q tiles that a CTA of the main kernel visits: those of its range, of each query
// head of the group; with attn_mask or sequence ids those of them that the finder hands over
// (finder.h).
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/memory.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

// One after another. The range is not empty.
template <BwdConfig kCfg>
struct BwdVisits {
  BwdSmem<kCfg>& smem;
  const BwdArgs& args;
  const BwdWork& work;
  i32 head, tile;  // head: of queries
  i64 first;       // of the head's tiles, among those of all heads and sequences; not lists()
  // lists() only.
  Ring<kBwdSteps> steps{};
  bool last = false;

  FA3_DEV BwdVisits(BwdSmem<kCfg>& smem, const BwdArgs& args, const BwdWork& work)
      : smem(smem),
        args(args),
        work(work),
        head(work.head_kv * args.group_size - (kCfg.lists() ? 0 : 1)),
        tile(work.first_q_tile<kCfg>() - 1),
        first(kCfg.lists() ? 0 : first_tile()) {}

  // To the next; false: there is none.
  FA3_DEV bool next() {
    if constexpr (kCfg.lists()) {
      if (last) return false;
      smem.steps_full[steps.stage].wait(steps.phase);
      const BwdStep step = BwdStep::read(smem.steps[steps.stage]);
      tile = step.tile, head = step.head, last = step.last;
      steps.advance();
      return !step.is_none();
    } else {
      if (++tile >= work.range.end) tile = work.range.first;
      if (tile != work.first_q_tile<kCfg>()) return true;
      if (++head == (BwdCta<kCfg>::head_kv(args) + 1) * args.group_size) return false;
      first = first_tile();
      return true;
    }
  }

  FA3_DEV i64 index() const { return (kCfg.lists() ? first_tile() : first) + tile; }

 private:
  FA3_DEV i64 first_tile() const {
    return args.tiles.first(BwdCta<kCfg>::batch(), head, work.q.begin, kCfg.tile_q);
  }
};

}  // namespace fa3::sm90
