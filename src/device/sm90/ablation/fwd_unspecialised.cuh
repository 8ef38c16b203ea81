// SPDX-License-Identifier: BSD-3-Clause
// fwd_unspecialised.cuh — the forward kernel without warp specialisation: the same consumers,
// and one of their threads loads what they have read. It is there to be measured against
// fwd.cuh, as in FlashAttention-3's ablation (docs/tuning/ablation.md); no row of the table
// uses it.
// 1 CONTRACT    As fwd.cuh; a CTA works on one Q tile.
// 2 ROLES       wg 0…: consumers. Warp 0 finds the tile; thread 0 loads Q, and K and V at the end
//               of each step, as soon as all consumers are through with it: it waits with its warp,
//               and so does its warpgroup at the next product. Specialisation saves that.
// 3 BARRIERS    As fwd.cuh; the producer is thread 0, the scheduler warp 0.
#pragma once

#include "device/ptx/grid.h"
#include "device/sm90/fwd/consumer.h"
#include "device/sm90/fwd/producer.h"
#include "device/sm90/fwd/smem.h"

namespace fa3::sm90 {

// K and V as thread 0 loads them: a ring's worth when the Q tile begins, then one for each that has
// been read.
template <FwdConfig kCfg>
struct OwnLoads {
  Producer<kCfg> producer;
  FwdSource from{};
  i32 first = 0, next_k = 0, next_v = 0;  // tiles [first, next_k], [first, next_v] are to be loaded

  FA3_DEV void start(const FwdWork& work) {
    from = producer.keys_of(work);
    first = work.range.first;
    next_k = next_v = work.range.end - 1;
    if (ptx::thread_index() == 0) {
      producer.load_q(work);
      FA3_NO_UNROLL
      for (int s = 0; s < kCfg.stages; ++s) load_k(), load_v();
    }
    ptx::warp_sync();  // for wgmma
  }
  FA3_DEV void refill_k() {
    if (ptx::thread_index() == 0) load_k();
    ptx::warp_sync();  // for wgmma
  }
  FA3_DEV void refill_v() {
    if (ptx::thread_index() == 0) load_v();
    ptx::warp_sync();  // for wgmma
  }

 private:
  FA3_DEV void load_k() {
    if (next_k >= first) producer.load_k(from, next_k--);
  }
  FA3_DEV void load_v() {
    if (next_v >= first) producer.load_v(from, next_v--);
  }
};

// 9 KERNEL
template <FwdConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void fwd_unspecialised(FA3_GRID_CONSTANT const FwdArgs args) {
  static_assert(kCfg.schedule == FwdSchedule::kOneTile && kCfg.cluster == 1);
  auto& smem = ptx::smem_as<FwdSmem<kCfg>>();
  if (ptx::thread_index() == 0) {
    smem.init_barriers();
    ptx::fence_mbar_init();
  }
  ptx::pdl_launch();
  ptx::pdl_wait();
  ptx::cta_sync();
  if (ptx::warp_index() == 0) schedule<kCfg>(smem, args);
  const OwnLoads<kCfg> loads{{smem, args}};
  Consumer<kCfg, OwnLoads<kCfg>>(smem, args, ptx::warpgroup_index(), loads).run();
}

}  // namespace fa3::sm90
