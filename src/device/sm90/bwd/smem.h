// SPDX-License-Identifier: BSD-3-Clause
// smem.h — shared memory of the backward kernel; bwd.cuh has the table of its barriers.
#pragma once

#include "device/hopper/barrier.h"
#include "device/ptx/memory.h"
#include "device/ptx/vec.h"
#include "device/sm90/bwd/config.h"

namespace fa3::sm90 {

// Named barriers of both consumers. One id: kStartBar is for staggered() kernels, kDsBar for the
// others.
inline constexpr u32 kStartBar = 1, kDsBar = 1;
// Of a consumer and its dQ writer's warp: that shared memory may be written, that dQ is there.
FA3_HD constexpr NamedBarrier dq_empty(u32 wg) { return {4 + wg, kWgThreads + 32}; }
FA3_HD constexpr NamedBarrier dq_full(u32 wg) { return {6 + wg, kWgThreads + 32}; }

// A Q tile that is visited, as the finder hands it over.
struct BwdStep {
  i32 head, tile;  // head: of queries
  bool last;       // of the CTA

  FA3_DEV static BwdStep none() { return {0, -1, true}; }
  FA3_DEV bool is_none() const { return tile < 0; }
  using Word = ptx::Vec<i32, 2>;
  FA3_DEV Word word() const { return {{2 * tile + (last ? 1 : 0), head}}; }
  FA3_DEV static BwdStep read(const Word& from) {
    const Word word = ptx::ld_shared(&from);
    return {word[1], word[0] >> 1, word[0] % 2 != 0};
  }
};

template <BwdConfig kCfg>
struct BwdSmem {
  static constexpr int kStages = kCfg.stages, kQStages = kCfg.q_stages();
  static constexpr int kDsSlots = kCfg.ds_slots(), kDsWriters = kCfg.ds_writers(),
                       kSteps = kCfg.lists() ? kBwdSteps : 1;
  alignas(1024) u8 k[kCfg.k_tile().bytes()];
  alignas(1024) u8 v[kCfg.v_tile().bytes()];
  alignas(1024) u8 q[kQStages][kCfg.q_tile().bytes()];
  alignas(1024) u8 dout[kStages][kCfg.dout_tile().bytes()];
  alignas(1024) u8 ds[kDsSlots][kCfg.ds_tile().bytes()];
  // Of the other CTA of the cluster: K's columns for this one's part of dQ, dS.
  alignas(kCfg.split() ? 1024 : 16) u8 peer_k[kCfg.split() ? kCfg.peer_k_tile().bytes() : 16];
  alignas(kCfg.split() ? 1024 : 16) u8 peer_ds[kCfg.split() ? kCfg.ds_tile().bytes() : 16];
  // Of each dQ writer.
  alignas(128) u32 dq[kCfg.consumer_wgs][kWgRows * kCfg.dq_piece_columns()];
  alignas(16) u32 zeros[kCfg.sets_zeros ? kZeroBytes / 4 : 4];  // what sums of dQ are set from
  alignas(128) float stats[kQStages][kCfg.delta_at()];          // LSE, ids, slopes
  alignas(128) float delta[kStages][kCfg.term_floats()];
  // Of dQ's rows, in the place of stage and phase.
  alignas(16) float scales[kCfg.deterministic ? kCfg.scale_slots() : 1]
                          [kCfg.deterministic ? kCfg.tile_q : 4];
  // Of each consumer's threads: the queries that see each of its two keys, from the first up to the
  // one behind the last.
  alignas(16) ptx::Vec<i32, 4> seen[kCfg.mask_makers()][kWgThreads];
  // Likewise: how far query 0 is behind the first of the keys, and their ids.
  alignas(16) ptx::Vec<i32, 4> placed[kCfg.functors ? kCfg.mask_makers() : 1]
                                     [kCfg.functors ? kWgThreads : 1];
  // Of each consumer warp: the Q tiles that it visits (TileRange).
  alignas(16) ptx::Vec<i32, 4> ranges[kCfg.consumer_wgs * kWgThreads / 32];
  alignas(8) BwdStep::Word steps[kSteps];
  alignas(8) i64 dq_tile[kCfg.consumer_wgs];  // deterministic: that of each consumer's next dQ
  Barrier k_full, v_full, q_full[kQStages], q_empty[kQStages], dout_full[kStages],
      dout_empty[kStages];
  Barrier ds_full[kDsSlots][kDsWriters], ds_empty[kDsSlots];
  Barrier peer_k_full, peer_ds_full;
  Barrier steps_full[kSteps], steps_empty[kSteps];
  FA3_NAMED(k, v, q, dout, ds, peer_k, peer_ds, dq, zeros, stats, delta, scales, seen, placed,
            ranges, steps, dq_tile, k_full, v_full, q_full, q_empty, dout_full, dout_empty, ds_full,
            ds_empty, peer_k_full, peer_ds_full, steps_full, steps_empty)

  FA3_DEV void init_barriers() {
    // Split, one consumer reads Q last, one dO, and dS of each of the cluster's CTAs.
    constexpr int kReaders = kCfg.split() ? 1 : kCfg.consumer_wgs;
    k_full.init(1), v_full.init(1);
    for (int s = 0; s < kQStages; ++s) q_full[s].init(1), q_empty[s].init(kReaders);
    for (int s = 0; s < kStages; ++s) dout_full[s].init(1), dout_empty[s].init(kReaders);
    for (int s = 0; s < kDsSlots; ++s) {
      for (Barrier& full : ds_full[s]) full.init(kWgThreads / 32);
      ds_empty[s].init(kReaders * kCfg.cluster());
    }
    for (int i = 0; i < kSteps && kCfg.lists(); ++i)
      steps_full[i].init(1), steps_empty[i].init(kCfg.consumer_wgs);
    if constexpr (kCfg.split()) peer_k_full.init(1), peer_ds_full.init(1);
  }
};

}  // namespace fa3::sm90
