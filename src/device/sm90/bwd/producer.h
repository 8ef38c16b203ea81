// SPDX-License-Identifier: BSD-3-Clause
// producer.h — one thread of the backward kernel's warpgroup 0 loads K and V once, then Q with its
// rows' LSE, and dO with their δ, of each Q tile as soon as its stage is empty.
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/bulk.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/visits.h"
#include "device/sm90/bwd/work.h"
#include "device/sm90/common/tile_load.h"

namespace fa3::sm90 {

// The loads of a CTA, by one thread.
template <BwdConfig kCfg>
struct BwdProducer {
  BwdSmem<kCfg>& smem;
  const BwdArgs& args;
  const BwdWork& work;
  Ring<kCfg.q_stages()> q = Ring<kCfg.q_stages()>::producer();
  Ring<kCfg.stages> dout = Ring<kCfg.stages>::producer();

  FA3_DEV void load_keys() const {
    const HeadRows keys{work.kv.begin, work.kv.used, work.head_kv, work.batch};
    load_tile<kCfg.ragged, kCfg.k_tile()>(smem.k, args.k, smem.k_full, keys, work.key,
                                          ptx::L2Hint::kEvictFirst);
    load_tile<kCfg.ragged, kCfg.v_tile()>(smem.v, args.v, smem.v_full, keys, work.key,
                                          ptx::L2Hint::kEvictFirst);
    if constexpr (kCfg.split()) {
      const i32 key = 2 * work.cluster_key<kCfg>() + kCfg.tile_kv() - work.key;
      const i32 column = kCfg.peer_k_tile().columns * static_cast<i32>(BwdCta<kCfg>::rank());
      load_tile<kCfg.ragged, kCfg.peer_k_tile()>(smem.peer_k, args.k, smem.peer_k_full, keys, key,
                                                 ptx::L2Hint::kEvictFirst, column);
    }
  }

  FA3_DEV void load_queries(const BwdVisits<kCfg>& of) {
    constexpr u32 kStats = static_cast<u32>(kCfg.stats_bytes()),
                  kScales = static_cast<u32>(kCfg.scale_bytes());
    const HeadRows rows{work.q.begin, work.q.used, of.head, work.batch};
    const u32 s = q.stage;
    smem.q_empty[s].wait(q.phase);
    // The bytes of both: the tile's are added by load_tile.
    ptx::mbar_expect_tx(smem.q_full[s].address(), kStats + kScales);
    const float* const stats = args.stats + of.index() * kCfg.row_floats();
    ptx::bulk_load(ptx::smem_address(smem.stats[s]), stats, kStats, smem.q_full[s].address());
    if constexpr (kCfg.deterministic) {
      const u32 slot = s + (q.phase ^ 1) * static_cast<u32>(kCfg.q_stages());
      ptx::bulk_load(ptx::smem_address(smem.scales[slot]), stats + kCfg.scales_at(), kScales,
                     smem.q_full[s].address());
    }
    load_tile<kCfg.ragged, kCfg.q_tile()>(smem.q[s], args.q, smem.q_full[s], rows,
                                          kCfg.tile_q * of.tile, ptx::L2Hint::kEvictLast);
    smem.dout_empty[dout.stage].wait(dout.phase);
    constexpr u32 kDelta = static_cast<u32>(kCfg.delta_bytes());
    ptx::mbar_expect_tx(smem.dout_full[dout.stage].address(), kDelta);
    ptx::bulk_load(ptx::smem_address(smem.delta[dout.stage]), stats + kCfg.delta_at(), kDelta,
                   smem.dout_full[dout.stage].address());
    load_tile<kCfg.ragged, kCfg.dout_tile()>(smem.dout[dout.stage], args.dout,
                                             smem.dout_full[dout.stage], rows,
                                             kCfg.tile_q * of.tile, ptx::L2Hint::kEvictLast);
    q.advance();
    dout.advance();
  }
};

template <BwdConfig kCfg>
FA3_DEV void produce(BwdSmem<kCfg>& smem, const BwdArgs& args, const BwdWork& work) {
  if (work.range.empty()) return;
  BwdVisits<kCfg> visits(smem, args, work);
  BwdProducer<kCfg> producer{smem, args, work};
  if (kCfg.lists() && !visits.next()) return;
  producer.load_keys();
  FA3_NO_UNROLL
  for (bool more = kCfg.lists() || visits.next(); more; more = visits.next())
    producer.load_queries(visits);
}

}  // namespace fa3::sm90
