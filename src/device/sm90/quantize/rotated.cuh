// SPDX-License-Identifier: BSD-3-Clause
// rotated.cuh — rows of 16 bits rotated, then turned, as codes with a scale for each row.
//
// A rotated row has more than 16 bits, so that the transform is additions. A lane has 64 columns
// where that can be, since the code of more does not fit the cache of instructions; lanes that
// share a row exchange columns, half a shuffle for each level between them (turn.h). The tables of
// the angles are larger than x, so a tile is the same rows of several heads, and what can be
// computed for all of them is: signs, the factor 1/√hadamard and, where the partners of a pair are
// partners in the transform, too, the sum and the difference of cosine and sine:
//   a·cos − b·sin + (b·cos + a·sin) = a·(cos + sin) + b·(cos − sin)
//   a·cos − b·sin − (b·cos + a·sin) = a·(cos − sin) − b·(cos + sin)
// CTAs stay, since one that begins has nothing to do until its first bytes are there. Producer
// warps bring tables and x; each consumer warp codes the rows of a head on its own.
// CONTRACT  as codes.cuh
// GRID      x: CTAs that take tiles (RotatedGrid), in turns or whoever is next
// BARRIERS  rotated.h
// SYNC      rotated_consumer.h
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/registers.h"
#include "device/ptx/smem.h"
#include "device/sm90/quantize/rotated_consumer.h"
#include "device/sm90/quantize/rotated_producers.h"

namespace fa3::sm90 {

template <RotatedConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void quantize_rotated(FA3_GRID_CONSTANT const QuantizeArgs args) {
  auto& smem = ptx::smem_as<RotatedSmem<kCfg>>();
  static_assert(sizeof smem <= kCfg.smem_bytes(), "smem_bytes() forgets something");
  if (ptx::thread_index() == 0) {
    smem.init_barriers();
    ptx::fence_mbar_init();
  }
  if (const u32 piece = ptx::thread_index(); piece < kCfg.codes.turn.head_dim / 8)
    ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 4>*>(&smem.sign[8 * piece]), args.sign[piece]);
  ptx::pdl_launch();
  ptx::pdl_wait();
  ptx::cta_sync();
  const u32 warp = ptx::warp_index();
  if (warp >= kCfg.consumers()) {
    ptx::reg_decrease<kCfg.kProducerRegisters>();
    const u32 producer = warp - kCfg.consumers();
    if (producer < kCfg.kTableWarps) {
      TableProducer<kCfg>(args, smem, producer).run();
    } else if (producer == kCfg.kTableWarps && ptx::lane_index() == 0) {
      load_rotated<kCfg>(args, smem);
    }
  } else {
    ptx::reg_increase<kCfg.consumer_registers()>();
    RotatedConsumer<kCfg>(args, smem, warp).run();
  }
}

}  // namespace fa3::sm90
