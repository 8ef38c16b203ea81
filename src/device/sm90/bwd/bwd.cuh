// SPDX-License-Identifier: BSD-3-Clause
// bwd.cuh — backward attention on Hopper: dK and dV of a KV tile in registers, over the Q tiles
// that see it; dQ in FP32 sums. Source: FlashAttention-3, appendix B.
// CONTRACT  bwd_delta.cuh has written args.stats, and 0 to args.dq_sum but with stores_dq;
//           bwd_dq.cuh turns it into dQ. dK and dV are written for every row of the tensors. Maps
//           have boxes as TileLayout says. cu_seqlens and seqused may hold anything.
// GRID      x: KV tiles of the longest sequence, of each the KV heads of a section · y: sections ·
//           z: sequences, and with cu_seqlens one more, the rows of none
// ROLES     wg 0: a thread is the producer; a warp for each consumer, of which a lane adds dQ;
//           lists(): a warp finds the Q tiles that are visited
//           wg 1, 2: consumers, 64 keys each; split(): the same 64, one for dV, one for dK
// BARRIERS  name             count           tx bytes        arrives              waits
//           k_full, v_full   1               K, V tile       producer, TMA        consumers
//           q_full[s]        1               Q tile, LSE, δ  producer, TMA        consumers
//           q_empty[s]       consumer_wgs    –               thread 0 of each     producer
//           dout_full, dout_empty                            as Q; split(): q_empty of dK's
//                                                            consumer and dout_empty of dV's come
//                                                            from their dQ writers
//           p_full           4               –               lane 0, dV's warps    dK's consumer
//           ds_full[s][wg]   4               –               lane 0 of its warps  consumers
//           ds_empty[s]      consumer_wgs    –               thread 0 of each     consumers
//           steps_full[i]    1               –               the finder's lane 0  producer, dQ
//                                                                                 writers, and the
//                                                                                 first consumers
//           steps_empty[i]   consumer_wgs    –               dQ writers           finder
//           dq_full(wg, p)   160 (named)     –               that consumer        its dQ writer
//           dq_empty(wg)     160 (named)     –               its dQ writer        that consumer
//           kDsBar           all consumers (named)           consumers            consumers
//           kStartBar        all consumers (named)           the first            the second
//           kOwnDsBar + wg   128 (named)                     that consumer        that consumer
//           kDoneBar + wg    all consumers (named)           that consumer        the other
//           Only split(): kDoneBar. Where dS is ready: p_full, ds_full, ds_empty split(); ds_full,
//           ds_empty, kStartBar and kOwnDsBar one tile ahead (d 64); kDsBar the others.
#pragma once

#include "device/ptx/registers.h"
#include "device/ptx/warp.h"
#include "device/sm90/begin_cta.h"
#include "device/sm90/bwd/ahead_consumer.h"
#include "device/sm90/bwd/consumer.h"
#include "device/sm90/bwd/finder.h"
#include "device/sm90/bwd/producer.h"
#include "device/sm90/bwd/split_consumer.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void bwd(FA3_GRID_CONSTANT const BwdArgs args) {
  auto& smem = begin_cta<BwdSmem<kCfg>, kCfg.smem_bytes()>();
  const BwdWork work = BwdWork::of_cta<kCfg>(args);
  if (work.key > 0 && work.key >= work.kv.rows) return;
  const u32 wg = ptx::warpgroup_index();
  if (wg == 0) {
    ptx::reg_decrease<kCfg.producer_registers()>();
    const u32 warp = ptx::warp_index();
    if (warp == 0) {
      if (ptx::elect_one()) produce<kCfg>(smem, args, work);
    } else if (warp <= kCfg.consumer_wgs) {
      write_dq<kCfg>(smem, args, work, warp - 1);
    } else if constexpr (kCfg.lists()) {
      if (!work.range.empty()) BwdFinder<kCfg>{smem, args, work}.run();
    }
  } else {
    ptx::reg_increase<kCfg.consumer_registers()>();
    if constexpr (kCfg.split())
      BwdSplitConsumer<kCfg>(smem, args, wg - 1).run(work);
    else if constexpr (kCfg.exact_p())
      BwdConsumer<kCfg>(smem, args, wg - 1).run(work);
    else
      BwdAheadConsumer<kCfg>(smem, args, wg - 1).run(work);
  }
}

}  // namespace fa3::sm90
