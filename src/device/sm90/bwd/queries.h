// SPDX-License-Identifier: BSD-3-Clause
// queries.h — which queries see the keys of a backward consumer, tile by tile, and the state that
// all consumers share.
#pragma once

#include "device/hopper/ring.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/memory.h"
#include "device/ptx/reduce.h"
#include "device/ptx/registers.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/mask_part.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/visits.h"
#include "device/sm90/bwd/work.h"
#include "device/warp/fragment.h"

namespace fa3::sm90 {

// The keys of a tile: of which sequence, and which rows of it count.
struct KeysOfTile {
  i32 q_used, kv_used, first_row;
  i32 key;  // the tile's first
  i32 batch;
};
template <BwdConfig kCfg, class SmemOf = BwdSmem<kCfg>>
struct BwdQueries {
  static constexpr MmaType kType = kCfg.dtype;
  static constexpr int kQueries = kCfg.tile_q;
  static constexpr bool kSoftcap = kCfg.softcap;
  static constexpr TileLayout kK = kCfg.k_tile(), kV = kCfg.v_tile(), kQ = kCfg.q_tile(),
                              kDout = kCfg.dout_tile(), kDs = kCfg.ds_tile();
  using Smem = SmemOf;
  using Scores = ptx::Acc<kQueries>;
  using Fragment = ptx::AFrag[kQueries / 16];
  static constexpr int kDqColumns = kCfg.dq_columns();
  static constexpr int kPieceFours = kCfg.dq_piece_columns() / 8;  // of a thread's registers
  using DqAcc = ptx::Acc<kDqColumns>;
  using QRing = Ring<kCfg.q_stages()>;
  using DoutRing = Ring<kCfg.stages>;
  using DsRing = Ring<kCfg.ds_slots()>;

  Smem& smem;
  const BwdArgs& args;
  u32 base;  // shared memory's first byte
  u32 wg;    // among the consumers
  u32 thread;
  i32 tile;                 // S's
  bool masked;              // whether it has pairs that the mask hides
  i32 head;                 // attn_mask only: whose tile it is
  Ring<kBwdSteps> steps{};  // lists() only
  bool last;                // likewise: whether no tile is behind S's
  bool coarse = false;      // adds_mask() only: whether LSE of some of S's rows is coarse
  MaskPlace place;          // mask_gradient only; else derived from the CTA's index on demand

  FA3_DEV BwdQueries(Smem& smem, const BwdArgs& args, u32 wg)
      : smem(smem),
        args(args),
        base(ptx::smem_address(&smem)),
        wg(wg),
        thread(ptx::thread_index() % kWgThreads) {}

  // Passes `thread` through a shuffle, so that the compiler keeps nothing derived from it in
  // registers across the loop.
  FA3_DEV void thread_anew() {
    thread = ptx::shfl_idx(thread, static_cast<int>(ptx::lane_index()));
  }
  // The first of the thread's two keys in the tile; the other is 8 further on.
  FA3_DEV u32 own_row() const { return kCfg.own_keys() * wg + fragment_row(thread); }
  FA3_DEV u32 column() const { return fragment_column(thread); }  // likewise of queries

  FA3_DEV bool has_tiles(const BwdWork& work) const {
    if (work.range.empty()) return false;
    if constexpr (kCfg.lists()) {
      smem.steps_full[0].wait(0);
      return !BwdStep::read(smem.steps[0]).is_none();
    }
    return true;
  }

  // Before anything else of a tile that has Q tiles. Returns their number, over all heads; with
  // lists() there may be fewer, which begin_tile() tells.
  FA3_DEV i32 start(const BwdWork& work) {
    see_keys({work.q.used, work.kv.used, first_row(args.kv_axis, work.kv), work.key, work.batch});
    // Through reductions, so that the compiler sees one value per warp; and in shared memory, since
    // over the loop it would take registers that are not left.
    const auto one = [](i32 x) { return static_cast<i32>(ptx::redux_or(static_cast<u32>(x))); };
    const ptx::Vec<i32, 4> range = {{one(work.range.first), one(work.range.unmasked_first),
                                     one(work.range.unmasked_end), one(work.range.end)}};
    if (ptx::lane_index() == 0) ptx::st_shared(&own_range(), range);
    ptx::warp_sync();  // sim:spare(range)
    if constexpr (!kCfg.lists()) visit(work.first_q_tile<kCfg>(), range);
    return (range[3] - range[0]) * args.group_size;
  }
  FA3_DEV void see_keys(const KeysOfTile& of) {
    ptx::Vec<i32, 4> seen;
    FA3_UNROLL
    for (u32 h = 0; h < 2; ++h) {
      const i32 key = of.key + static_cast<i32>(own_row() + 8 * h);
      const Range<i32> of_key = rows_of_key(args.band, of.q_used, of.kv_used, key);
      seen[2 * h] = of_key.lo, seen[2 * h + 1] = of_key.hi;
    }
    if (wg < kCfg.mask_makers()) {
      ptx::st_shared(&smem.seen[wg][thread], seen);
      if constexpr (kCfg.functors) place_keys(of);
    }
  }
  FA3_DEV void place_keys(const KeysOfTile& of) {
    const i32 key = of.key + static_cast<i32>(own_row());
    ptx::Vec<i32, 4> placed{};
    placed[0] = of.kv_used - of.q_used - key;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (args.ids_kv == nullptr || key + 8 * h >= of.kv_used) continue;
      placed[1 + h] =
          ptx::ld_global_nc(args.ids_kv + of.batch * args.id_kv_batch + of.first_row + key + 8 * h);
    }
    ptx::st_shared(&smem.placed[wg][thread], placed);
  }
  FA3_DEV void visit(i32 next, const ptx::Vec<i32, 4>& of) {
    tile = next;
    masked = tile < of[1] || tile >= of[2];
  }
  // lists() only: S's tile becomes the next one, whose Q is there.
  FA3_DEV void begin_tile() {
    if constexpr (kCfg.lists()) {
      const BwdStep step = BwdStep::read(smem.steps[steps.stage]);
      const u32 word = ptx::redux_or(static_cast<u32>(step.word()[0]));
      last = word % 2 != 0;
      if constexpr (kCfg.has_mask())
        head = static_cast<i32>(ptx::redux_or(static_cast<u32>(step.head)));
      visit(static_cast<i32>(word / 2), load_range());
      steps.advance();
    }
  }
  FA3_DEV void next_tile() {
    if constexpr (!kCfg.lists()) {
      const ptx::Vec<i32, 4> of = load_range();
      visit(tile + 1 == of[3] ? of[0] : tile + 1, of);
    }
  }
  FA3_DEV ptx::Vec<i32, 4>& own_range() const {
    return smem.ranges[(kWgThreads * wg + thread) / 32];
  }
  FA3_DEV ptx::Vec<i32, 4> load_range() const { return ptx::ld_shared(&own_range()); }
};

}  // namespace fa3::sm90
