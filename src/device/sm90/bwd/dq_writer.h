// SPDX-License-Identifier: BSD-3-Clause
// dq_writer.h — two warps of the backward kernel's warpgroup 0, one for each consumer, add in bulk
// what it hands over of a tile of dQ to the sums.
#pragma once

#include "device/ptx/bulk.h"
#include "device/ptx/memory.h"
#include "device/ptx/reduce.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/dq_zeros.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/visits.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

// One warp of two, which adds in bulk, by a lane, what consumer `w` hands over of each tile; split,
// half of the columns, a piece a turn. dq_tile is where a consumer has to note what is not finite.
template <BwdConfig kCfg>
FA3_DEV void write_dq(BwdSmem<kCfg>& smem, const BwdArgs& args, const BwdWork& work, u32 w) {
  if (work.range.empty()) return;
  [[maybe_unused]] bool first = true;
  constexpr u32 kPiece = static_cast<u32>(kWgRows * kCfg.dq_piece_columns()),
                kWriters = static_cast<u32>(kCfg.consumer_wgs), kTurns = kCfg.dq_turns();
  const u32 from = ptx::smem_address(smem.dq[w]);
  FA3_NO_UNROLL
  for (BwdVisits<kCfg> visits(smem, args, work); visits.next();) {
    const i64 at = visits.index();
    if (kCfg.deterministic && ptx::elect_one()) {
      ptx::st_shared(&smem.dq_tile[w], at);
      if (w == 0 && BwdCta<kCfg>::rank() == 0)
        ptx::red_add_u32(args.dq_flag + at * kCfg.dq_flags() + kCfg.dq_count_at(), 1);
    }
    u32* const to =
        args.dq_sum + at * kCfg.dq_sums() + (BwdCta<kCfg>::rank() * kWriters * kTurns + w) * kPiece;
    FA3_UNROLL
    for (u32 turn = 0; turn < kTurns; ++turn) {
      dq_empty(w).arrive();
      if constexpr (kCfg.sets_zeros) {
        if (first && ptx::elect_one()) await_zeros<kCfg>(args);
        first = false;
      }
      dq_full(w).sync();
      if (ptx::elect_one() && args.sums_dq) {
        u32* const piece = to + turn * kWriters * kPiece;
        if (args.stores_dq)
          ptx::bulk_store(piece, from, 4 * kPiece);
        else if constexpr (kCfg.deterministic)
          ptx::bulk_reduce_add_u32(piece, from, 4 * kPiece);
        else
          ptx::bulk_reduce_add_f32(reinterpret_cast<float*>(piece), from, 4 * kPiece);
        ptx::bulk_commit();
        ptx::bulk_wait_read<0>();
      }
      ptx::warp_sync();  // sim:spare(lanes)
    }
    if constexpr (kCfg.lists())
      smem.steps_empty[visits.steps.before().stage].arrive_if(ptx::elect_one());
  }
}

}  // namespace fa3::sm90
