// SPDX-License-Identifier: BSD-3-Clause
// fwd.cuh — forward attention on Hopper: TMA, warp specialisation, wgmma.
// Guide: docs/guide/fwd_schedule.md. Sources: FlashAttention-3, algorithms 1 and 2.
// CONTRACT  O = softmax(score(Q·Kᵀ) + mask)·V per head, LSE in natural logarithm. The plan
//           guarantees a legal configuration (plan/sm90/fwd/configs.h), maps of boxes as TileLayout
//           says and fewer than 2^30 rows per tensor. cu_seqlens and seqused may hold anything.
// ROLES     wg 0: warp 1 is the scheduler and finds the Q tiles to work on; a thread of warp 0 is
//           the producer and loads Q, K, V and an attn_mask that is added by TMA, but V is loaded
//           by a thread of warp 2 where v_producer(); warps 2 and 3 transpose 8-bit V where
//           transposes(); from a cache, all lanes of both warps load ·
//           wg 1…: consumers, 64 rows of Q each: GEMMs, softmax, store
// BARRIERS  name            count           tx bytes  arrives                    waits
//           q_full[i]       1               64 rows   producer, TMA              consumer w
//           q_empty[i]      1               –         thread 0 of consumer w     producer
//                                                     (i = stage · consumer_wgs + w)
//           k_full[s]       1               K tile    producer, TMA              consumers
//           k_empty[s]      consumer_wgs    –         thread 0 of each consumer  producer
//                           (from a cache row by row: kv_arrivals(), no bytes)
//           v_full, v_empty                           as K
//           mask_full[i]    1               64 rows   producer, TMA              consumer w
//           mask_empty[i]   4               –         lane 0 of consumer w's     producer
//                                                     warps (i as of Q)
//           raw_v_full[s]   1               V tile    producer, TMA              transposers
//           raw_v_empty[s]  2               –         lane 0 of each transposer  producer
//                           (transposes(): v_full has these two arrivals instead, and no bytes)
//           work_full[r]    1               –         lane 0 of the scheduler    all others
//           work_empty[r]   4·consumer_wgs  –         lane 0 of each consumer's  scheduler
//                           (+ 2, + 1)                and transposer's warp, the
//                                                     producer of V
//           claim           1               –         producer                   scheduler
//           pages.known[r]  1               –         scheduler                  consumers, before
//                                                                                they mask a Q tile
//           kTileBar + w    128 (named)     –         consumer w                 the same
//           kTurnBar + w    256 (named)     –         consumer w − 1             consumer w
#pragma once

#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/begin_cta.h"
#include "device/sm90/fwd/columns.h"
#include "device/sm90/fwd/consumer.h"
#include "device/sm90/fwd/epilogue.h"
#include "device/sm90/fwd/producer.h"
#include "device/sm90/fwd/scheduler.h"
#include "device/sm90/fwd/smem.h"
#include "device/sm90/fwd/step.h"
#include "device/sm90/fwd/transposer.h"
#include "device/warp/alibi.h"
#include "device/warp/sequence_ids.h"

namespace fa3::sm90 {

// All roles. Order: in which order consumers overlap a Q tile's GEMMs and softmax. F: Functors
// (warp/element.h).
template <FwdConfig kCfg, class Order, class F = Functors<>>
FA3_DEV void run_fwd(const FwdArgs& args) {
  using Mask = typename F::Mask;
  const u32 wg = ptx::warpgroup_index();
  auto& smem = begin_cta<FwdSmem<kCfg>, kCfg.smem_bytes()>();
  if (wg == 0) {
    ptx::reg_decrease<kCfg.producer_registers(Mask::kActive)>();
    if (ptx::warp_index() == 0 && produces<kCfg>()) produce<kCfg>(smem, args);
    if (ptx::warp_index() == 1) schedule<kCfg, Mask>(smem, args);
    if constexpr (kCfg.v_producer())
      if (ptx::warp_index() == 2 && produces<kCfg>()) produce<kCfg, true>(smem, args);
    if constexpr (kCfg.transposes())
      if (ptx::warp_index() >= 2) transpose<kCfg>(smem, ptx::warp_index() - 2);
  } else {
    ptx::reg_increase<kCfg.consumer_registers(Mask::kActive)>();
    Consumer<kCfg, Order, F>(smem, args, wg - 1).run();
  }
}

template <FwdConfig kCfg>
struct OrderOf {
  using Type = TwoStage;
};
template <FwdConfig kCfg>
requires(kCfg.scores.column_scales()) struct OrderOf<kCfg> {
  using Type = ByColumns;
};
template <FwdConfig kCfg>
requires(kCfg.accumulate.part_tiles > 0) struct OrderOf<kCfg> {
  using Type = ByParts;
};

template <FwdConfig kCfg, class Score = SameScore, class Mask = EveryKey>
FA3_KERNEL(kCfg.threads(), 1)
void fwd(FA3_GRID_CONSTANT const FwdArgs args) {
  run_fwd<kCfg, typename OrderOf<kCfg>::Type, Functors<Score, Mask>>(args);
}

}  // namespace fa3::sm90
