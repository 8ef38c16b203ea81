// SPDX-License-Identifier: BSD-3-Clause
// dq_writer.h — two warps of the backward kernel's warpgroup 0, one for each consumer, add in bulk
// what it hands over of a tile of dQ to the sums.
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/bulk.h"
#include "device/ptx/memory.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/dq_fixed.h"
#include "device/sm90/bwd/dq_zeros.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/visits.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

// One warp of two, which adds in bulk, by a lane, what consumer `w` hands over of each tile; split,
// half of the columns, a piece a turn. Deterministic, all lanes first make integers of it, but
// split, where dK's consumer has.
template <BwdConfig kCfg>
FA3_DEV void write_dq(BwdSmem<kCfg>& smem, const BwdArgs& args, const BwdWork& work, u32 w) {
  if (work.range.empty()) return;
  constexpr bool kFixes = kCfg.deterministic && !kCfg.split();
  [[maybe_unused]] bool first = true;
  constexpr u32 kPiece = static_cast<u32>(kWgRows * kCfg.dq_piece_columns()),
                kWriters = static_cast<u32>(kCfg.consumer_wgs), kTurns = kCfg.dq_turns();
  const u32 from = ptx::smem_address(smem.dq[w]);
  [[maybe_unused]] Ring<kCfg.scale_slots()> scales;
  FA3_NO_UNROLL
  for (BwdVisits<kCfg> visits(smem, args, work); visits.next();) {
    const i64 at = visits.index();
    if (kCfg.deterministic && kCfg.split() && w == 0 && ptx::elect_one())
      ptx::st_shared(&smem.dq_tile, at);
    FA3_UNROLL
    for (u32 turn = 0; turn < kTurns; ++turn) {
      dq_empty(w).arrive();
      if constexpr (kCfg.sets_zeros) {
        if (first && ptx::elect_one()) await_zeros<kCfg>(args);
        first = false;
      }
      dq_full(w).sync();
      const u32 piece = (BwdCta<kCfg>::rank() * kTurns + turn) * kWriters + w;
      if constexpr (kFixes) {
        DqFixed<kCfg>{smem, args, w}.run(at, scales.stage, piece);
        ptx::warp_sync();
      }
      if (ptx::elect_one() && args.sums_dq) {
        u32* const to = args.dq_sum + at * kCfg.dq_sums() + piece * kPiece;
        if (args.stores_dq)
          ptx::bulk_store(to, from, 4 * kPiece);
        else if constexpr (kCfg.deterministic)
          ptx::bulk_reduce_add_u32(to, from, 4 * kPiece);
        else
          ptx::bulk_reduce_add_f32(reinterpret_cast<float*>(to), from, 4 * kPiece);
        ptx::bulk_commit();
        ptx::bulk_wait_read<0>();
      }
      ptx::warp_sync();  // sim:spare(lanes)
    }
    if constexpr (kFixes) scales.advance();
    if constexpr (kCfg.lists())
      smem.steps_empty[visits.steps.before().stage].arrive_if(ptx::elect_one());
  }
}

}  // namespace fa3::sm90
