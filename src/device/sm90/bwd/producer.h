// SPDX-License-Identifier: BSD-3-Clause
// producer.h — what the backward kernel's warpgroup 0 does: one thread loads K and V once, then Q
// with its rows' LSE and δ, and dO, of each Q tile as soon as its stage is empty; the dQ writers
// add what the consumers hand over to dQ's sums.
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/bulk.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/work.h"
#include "device/sm90/tile_load.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
FA3_DEV void produce(BwdSmem<kCfg>& smem, const BwdArgs& args, const BwdWork& work) {
  if (work.range.empty()) return;
  const TileSource keys{work.kv.begin, work.kv.used, work.head_kv, work.batch};
  load_tile<kCfg.ragged, kCfg.k_tile()>(smem.k, args.k, smem.kv_full, keys, work.key,
                                        ptx::L2Hint::kEvictFirst);
  load_tile<kCfg.ragged, kCfg.v_tile()>(smem.v, args.v, smem.kv_full, keys, work.key,
                                        ptx::L2Hint::kEvictFirst);
  constexpr u32 kStats = static_cast<u32>(kCfg.stats_bytes());
  auto q_ring = Ring<kCfg.q_stages()>::producer();
  auto dout_ring = Ring<kCfg.stages>::producer();
  FA3_NO_UNROLL
  for (i32 h = 0; h < args.group_size; ++h) {
    const i32 head = work.head_kv * args.group_size + h;
    const TileSource rows{work.q.begin, work.q.used, head, work.batch};
    const i64 first = args.tiles.first(work.batch, head, work.q.begin, kCfg.tile_q);
    FA3_NO_UNROLL
    for (i32 tile = work.range.first; tile < work.range.end; ++tile) {
      u32 s = q_ring.stage;
      smem.q_empty[s].wait(q_ring.phase);
      // The bytes of both: the tile's are added by load_tile.
      ptx::mbar_expect_tx(smem.q_full[s].address(), kStats);
      ptx::bulk_load(ptx::smem_address(smem.stats[s]),
                     args.stats + (first + tile) * (kCfg.stats() * kCfg.tile_q), kStats,
                     smem.q_full[s].address());
      load_tile<kCfg.ragged, kCfg.q_tile()>(smem.q[s], args.q, smem.q_full[s], rows,
                                            kCfg.tile_q * tile, ptx::L2Hint::kEvictLast);
      s = dout_ring.stage;
      smem.dout_empty[s].wait(dout_ring.phase);
      load_tile<kCfg.ragged, kCfg.dout_tile()>(smem.dout[s], args.dout, smem.dout_full[s], rows,
                                               kCfg.tile_q * tile, ptx::L2Hint::kEvictLast);
      q_ring.advance();
      dout_ring.advance();
    }
  }
}

// One thread for consumer `w`, whose part of each tile it adds in bulk.
template <BwdConfig kCfg>
FA3_DEV void write_dq(BwdSmem<kCfg>& smem, const BwdArgs& args, const BwdWork& work, u32 w) {
  if (work.range.empty()) return;
  constexpr u32 kPart = BwdSmem<kCfg>::kDqPart;
  u32 phase = 0;
  FA3_NO_UNROLL
  for (i32 h = 0; h < args.group_size; ++h) {
    const i64 first =
        args.tiles.first(work.batch, work.head_kv * args.group_size + h, work.q.begin, kCfg.tile_q);
    FA3_NO_UNROLL
    for (i32 tile = work.range.first; tile < work.range.end; ++tile) {
      smem.dq_full[w].wait(phase);
      ptx::bulk_reduce_add_f32(args.dq_sum + (first + tile) * kCfg.dq_floats() + w * kPart,
                               ptx::smem_address(smem.dq[w]), 4 * kPart);
      ptx::bulk_commit();
      ptx::bulk_wait_read<0>();
      smem.dq_empty[w].arrive();
      phase ^= 1;
    }
  }
}

}  // namespace fa3::sm90
