// SPDX-License-Identifier: BSD-3-Clause
// producer.h — a thread of the decode kernel that loads K and V by TMA, as soon as stages are
// empty.
#pragma once

#include "device/hopper/ring.h"
#include "device/sm90/common/tile_load.h"
#include "device/sm90/decode/smem.h"
#include "device/sm90/decode/units.h"

namespace fa3::sm90 {

template <DecodeConfig kCfg>
struct DecodeProducer {
  DecodeSmem<kCfg>& smem;
  const DecodeArgs& args;
  Ring<kCfg.stages> ring = Ring<kCfg.stages>::producer();

  // KV tiles [first, end) of a unit. Each is read once: it is the first to leave L2.
  FA3_DEV void run(const DecodeUnit& unit, i32 first, i32 end) {
    const HeadRows from{unit.kv.begin, unit.kv.used, unit.kv_head, unit.batch};
    FA3_NO_UNROLL
    for (i32 tile = first; tile < end; ++tile) {
      const i32 row = kCfg.tile_kv * tile;
      smem.k_empty[ring.stage].wait(ring.phase);  // sim:spare(one_tile)
      load_tile<kCfg.ragged, kCfg.k_tile()>(smem.k[ring.stage], args.k, smem.k_full[ring.stage],
                                            from, row, ptx::L2Hint::kEvictFirst);
      smem.v_empty[ring.stage].wait(ring.phase);  // sim:spare(one_tile)
      load_tile<kCfg.ragged, kCfg.v_tile()>(smem.v[ring.stage], args.v, smem.v_full[ring.stage],
                                            from, row, ptx::L2Hint::kEvictFirst);
      ring.advance();
    }
  }
};

}  // namespace fa3::sm90
