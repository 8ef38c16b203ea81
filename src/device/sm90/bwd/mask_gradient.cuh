// SPDX-License-Identifier: BSD-3-Clause
// mask_gradient.cuh — dattn_mask: each element once, summed over the batch entries, heads, queries
// and keys that share it, in the same order in every run.
// CONTRACT  delta.cuh has written args.main.stats, and mask_image.cuh args.main.image. All elements
//           are written. Maps have boxes as TileLayout says. seqused and cu_seqlens of keys may
//           hold anything.
// GRID      x: CTAs that take tiles of dattn_mask in turns
// ROLES     wg 0: a thread is the producer · wg 1, 2: consumers, 64 keys each
// BARRIERS  name      count              tx bytes              arrives                waits
//           full[s]   2                  K, Q; V, dO, LSE, δ   producer, TMA          consumers
//           empty[s]  4 · consumer_wgs   –                     lane 0 of their warps  producer
//           kSumsBar  all consumers (named), where keys are summed
#pragma once

#include "device/ptx/registers.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/mask_gradient.h"
#include "device/sm90/common/begin_cta.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void bwd_mask_gradient(FA3_GRID_CONSTANT const MaskGradientArgs args) {
  auto& smem = begin_cta<MaskGradientSmem<kCfg>, kCfg.smem_bytes()>();
  const u32 wg = ptx::warpgroup_index();
  if (wg == 0) {
    ptx::reg_decrease<kCfg.producer_registers()>();
    if (ptx::warp_index() == 0 && ptx::elect_one()) GradientProducer<kCfg>{smem, args}.run();
  } else {
    ptx::reg_increase<kCfg.consumer_registers()>();
    MaskGradientConsumer<kCfg>(smem, args, wg - 1).run();
  }
}

}  // namespace fa3::sm90
