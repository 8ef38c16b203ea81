// SPDX-License-Identifier: BSD-3-Clause
// bwd.cuh — backward attention on Hopper: dK and dV of a KV tile in registers, over the Q tiles
// that see it; dQ in FP32 sums. Source: FlashAttention-3, appendix B.
// CONTRACT  delta.cuh has written args.stats, 0 to what dq_zeros.h counts with, and to dq_sum
//           but with stores_dq and where dq_zeros.h does it; dq.cuh turns it into dQ. dK and
//           dV are written for every row of the tensors. Maps have boxes as TileLayout says.
//           cu_seqlens and seqused may hold anything.
// GRID      x: KV tiles of the longest sequence, of each the KV heads of a section; split(), of
//           each a cluster of two · y: sections · z: sequences, and with cu_seqlens one more, the
//           rows of none
// ROLES     wg 0: a thread is the producer; two warps, the dQ writers, of which a lane adds dQ; a
//           warp sets sums of dQ to 0 that other CTAs need or, lists(), finds the Q tiles that are
//           visited
//           wg 1, 2: consumers, 64 keys each; split(): the same 64, one for P, dS and dV, one for
//           dK and dQ
// BARRIERS  name             count           tx bytes        arrives              waits
//           k_full, v_full   1               K, V tile       producer, TMA        consumers
//           q_full[s]        1               Q tile, LSE     producer, TMA        consumers
//           q_empty[s]       consumer_wgs    –               thread 0 of each     producer
//           dout_full, dout_empty            dO tile, δ      as Q
//           ds_full[s][wg]   4               –               lane 0 of its warps  consumers
//           ds_empty[s]      consumer_wgs    –               thread 0 of each     consumers
//           steps_full[i]    1               –               the finder's lane 0  producer, dQ
//                                                                                 writers, and the
//                                                                                 first consumers
//           steps_empty[i]   consumer_wgs    –               dQ writers           finder
//           dq_full(wg)      160 (named)     –               that consumer        its dQ writer
//           dq_empty(wg)     160 (named)     –               its dQ writer        that consumer
//           kDsBar           all consumers (named)           consumers            consumers
//           kStartBar        all consumers (named)           the first            the second
//           split() only:
//           peer_k_full      1               K's columns     producer, TMA        dK's consumer
//           peer_ds_full     1               dS              dK's consumer; the   dK's consumer
//                                                            other CTA's copies
//           Where dS is ready: ds_full, ds_empty split() and staggered(), which has kStartBar,
//           too; kDsBar the others. split(): q_empty and dout_empty have one arrival, of dK's and
//           dV's consumer; ds_empty two, of dK's consumer of each CTA; dK's consumer hands over to
//           both dQ writers.
#pragma once

#include "device/ptx/registers.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/consumer.h"
#include "device/sm90/bwd/dq_writer.h"
#include "device/sm90/bwd/finder.h"
#include "device/sm90/bwd/producer.h"
#include "device/sm90/bwd/split_consumer.h"
#include "device/sm90/common/begin_cta.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void bwd(FA3_GRID_CONSTANT const BwdArgs args) {
  auto& smem = begin_cta<BwdSmem<kCfg>, kCfg.smem_bytes(), kCfg.cluster()>();
  const BwdWork first = BwdWork::of_cta<kCfg>(args);
  if (first.cluster_key<kCfg>() > 0 && first.cluster_key<kCfg>() >= first.kv.rows) return;
  // Split with lists, each role makes it again: kept, it would take registers that are not left.
  const auto work_of_role = [&] {
    if constexpr (kCfg.split() && kCfg.lists()) return BwdWork::of_cta<kCfg>(args);
    return first;
  };
  const u32 wg = ptx::warpgroup_index();
  if (wg == 0) {
    ptx::reg_decrease<kCfg.producer_registers()>();
    const u32 warp = ptx::warp_index();
    if (warp == 0) {
      const BwdWork work = work_of_role();
      if (ptx::elect_one()) produce<kCfg>(smem, args, work);
    } else if (warp <= kCfg.consumer_wgs) {
      write_dq<kCfg>(smem, args, work_of_role(), warp - 1);
    } else if constexpr (kCfg.lists()) {
      const BwdWork work = work_of_role();
      if (!work.range.empty()) BwdFinder<kCfg>{smem, args, work}.run();
    } else if constexpr (kCfg.sets_zeros) {
      DqZeros<kCfg>{smem, args}.run();
    }
  } else {
    ptx::reg_increase<kCfg.consumer_registers()>();
    if constexpr (kCfg.split())
      BwdSplitConsumer<kCfg>(smem, args, wg - 1).run(work_of_role());
    else
      BwdConsumer<kCfg>(smem, args, wg - 1).run(work_of_role());
  }
  // The other CTA of the cluster writes to this one's shared memory until its last step.
  if constexpr (kCfg.cluster() > 1) {
    ptx::warp_sync();  // sim:spare(aligned)
    ptx::cluster_sync();
  }
}

}  // namespace fa3::sm90
