// SPDX-License-Identifier: BSD-3-Clause
// parts.h — what the backward's consumers share: which queries see their keys (queries.h), the
// GEMMs (gemms.h), P and dS (weights.h), sums of dQ (dq_sums.h), and here gradients into tensors.
#pragma once

#include "device/sm90/bwd/dq_sums.h"
#include "device/sm90/bwd/store_rows.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

template <BwdConfig kCfg, class SmemOf = BwdSmem<kCfg>>
struct BwdParts : BwdDqSums<kCfg, SmemOf> {
  using Base = BwdDqSums<kCfg, SmemOf>;
  using Base::args, Base::wg, Base::thread;
  using Base::Base;

  // store(work) for the CTA's tile, and again for rows of no sequence, which may be more than the
  // grid has tiles. They leave through this consumer's own rows of V, which nobody else reads;
  // split, dK through K, whose last reader is dK's consumer, since dS was made of the last S.
  template <class Store>
  FA3_DEV void store_tiles(const Store& store) const {
    // Read again: kept over the loop, it would take registers.
    BwdWork work = BwdWork::of_cta<kCfg>(args);
    const i32 step = kCfg.tile_kv() * BwdCta<kCfg>::kv_tiles(args);
    FA3_NO_UNROLL
    do {
      store(work);
      work.key += step;
    } while (work.batch == args.batch && work.key < work.kv.rows);
  }
  template <TileLayout kTile, int N>
  FA3_DEV void store_rows(const BwdTensor& to, const BwdWork& work, const ptx::Acc<N>& acc,
                          i32 columns, u8* tile) const {
    sm90::store_rows<kCfg, kTile>({args, work, wg, thread}, to, acc, columns, tile);
  }
};

}  // namespace fa3::sm90
