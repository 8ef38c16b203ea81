// SPDX-License-Identifier: BSD-3-Clause
// producer.h — what the backward kernel's warpgroup 0 does: one thread loads K and V once, then Q
// with its rows' LSE and δ, and dO, of each Q tile as soon as its stage is empty; the dQ writers
// add what the consumers hand over to dQ's sums.
#pragma once

#include "device/hopper/ring.h"
#include "device/ptx/bulk.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/visits.h"
#include "device/sm90/bwd/work.h"
#include "device/sm90/tile_load.h"

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
    const TileSource keys{work.kv.begin, work.kv.used, work.head_kv, work.batch};
    load_tile<kCfg.ragged, kCfg.k_tile()>(smem.k, args.k, smem.k_full, keys, work.key,
                                          ptx::L2Hint::kEvictFirst);
    load_tile<kCfg.ragged, kCfg.v_tile()>(smem.v, args.v, smem.v_full, keys, work.key,
                                          ptx::L2Hint::kEvictFirst);
  }

  FA3_DEV void load_queries(const BwdVisits<kCfg>& of) {
    constexpr u32 kStats = static_cast<u32>(kCfg.stats_bytes()),
                  kScales = static_cast<u32>(kCfg.scale_bytes());
    const TileSource rows{work.q.begin, work.q.used, of.head, work.batch};
    const u32 s = q.stage;
    smem.q_empty[s].wait(q.phase);
    // The bytes of both: the tile's are added by load_tile.
    ptx::mbar_expect_tx(smem.q_full[s].address(), kStats + kScales);
    const float* const stats = args.stats + of.index() * kCfg.stats_and_scales();
    ptx::bulk_load(ptx::smem_address(smem.stats[s]), stats, kStats, smem.q_full[s].address());
    if constexpr (kCfg.deterministic) {
      const u32 slot = s + (q.phase ^ 1) * static_cast<u32>(kCfg.q_stages());
      ptx::bulk_load(ptx::smem_address(smem.scales[slot]), stats + kStats / 4, kScales,
                     smem.q_full[s].address());
    }
    load_tile<kCfg.ragged, kCfg.q_tile()>(smem.q[s], args.q, smem.q_full[s], rows,
                                          kCfg.tile_q * of.tile, ptx::L2Hint::kEvictLast);
    smem.dout_empty[dout.stage].wait(dout.phase);
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

// One warp for consumer `w`, of whose part of each tile a lane adds piece by piece in bulk. dq_tile
// is where a consumer has to note what is not finite.
template <BwdConfig kCfg>
FA3_DEV void write_dq(BwdSmem<kCfg>& smem, const BwdArgs& args, const BwdWork& work, u32 w) {
  if (work.range.empty()) return;
  constexpr u32 kPart = BwdSmem<kCfg>::kDqPart, kPiece = kPart / kCfg.dq_pieces();
  static_assert(kCfg.dq_apart() || kCfg.stages == kCfg.q_stages(), "Q and dO: one ring for both");
  static_assert(
      kCfg.dq_apart() || (4 * kPart <= sizeof smem.q[0] && 4 * kPart <= sizeof smem.dout[0]),
      "dQ on its way out: more than a tile of Q or dO");
  Ring<kCfg.stages> ring;
  FA3_NO_UNROLL
  for (BwdVisits<kCfg> visits(smem, args, work); visits.next();) {
    const i64 at = visits.index();
    if (kCfg.deterministic && ptx::elect_one()) ptx::st_shared(&smem.dq_tile[w], at);
    dq_empty(w).arrive();
    u32* const to = args.dq_sum + at * kCfg.dq_sums() + w * kPart;
    u32 from = ptx::smem_address(smem.dq[kCfg.dq_apart() ? w : 0]);
    if constexpr (!kCfg.dq_apart())
      from =
          w == 0 ? ptx::smem_address(smem.dout[ring.stage]) : ptx::smem_address(smem.q[ring.stage]);
    FA3_UNROLL
    for (u32 piece = 0; piece < kCfg.dq_pieces(); ++piece) {
      dq_full(w, piece).sync();
      if (!ptx::elect_one() || !args.sums_dq) continue;
      if (args.stores_dq)
        ptx::bulk_store(to + piece * kPiece, from + 4 * kPiece * piece, 4 * kPiece);
      else if constexpr (kCfg.deterministic)
        ptx::bulk_reduce_add_u32(to + piece * kPiece, from + 4 * kPiece * piece, 4 * kPiece);
      else
        ptx::bulk_reduce_add_f32(reinterpret_cast<float*>(to + piece * kPiece),
                                 from + 4 * kPiece * piece, 4 * kPiece);
      ptx::bulk_commit();
    }
    if constexpr (kCfg.lists())
      smem.steps_empty[visits.steps.before().stage].arrive_if(ptx::elect_one());
    if (ptx::elect_one()) ptx::bulk_wait_read<0>();
    ptx::warp_sync();  // sim:spare(lanes)
    if constexpr (!kCfg.dq_apart()) {
      (w == 0 ? smem.dout_empty[ring.stage] : smem.q_empty[ring.stage]).arrive_if(ptx::elect_one());
      ring.advance();
    }
  }
}

}  // namespace fa3::sm90
