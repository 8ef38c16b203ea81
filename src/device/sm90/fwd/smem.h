// SPDX-License-Identifier: BSD-3-Clause
// smem.h — shared memory of the forward kernel; fwd.cuh has the table of its barriers.
#pragma once

#include "device/hopper/barrier.h"
#include "device/sm90/common/kv_runs.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/config.h"
#include "device/types.h"

namespace fa3::sm90 {

inline constexpr u32 kTileBar = 1, kTurnBar = 4;  // named barriers, one per consumer
inline constexpr int kTransposers = 2;            // warps that transpose V

// From a cache: whether pages of the keys of a slot's work do not exist (missing.h). Else nothing.
template <bool kCached, int kSlots>
struct KnownPages {
  Barrier known[kSlots];
  u32 missing[kSlots];
  FA3_NAMED(known, missing)
};
template <int kSlots>
struct KnownPages<false, kSlots> {
  Barrier known[1];
  FA3_NAMED(known)
};

// Tiles as TileLayout says.
template <FwdConfig kCfg>
struct FwdSmem {
  static constexpr int kStages = kCfg.tile.stages, kWgs = kCfg.tile.consumer_wgs;
  static constexpr int kQSlots = kCfg.tile.q_stages * kWgs, kWorkSlots = FwdConfig::kWorkSlots;
  static constexpr bool kTransposes = kCfg.transposes();
  // Warps that release a slot of work. Not the producer of Q: consumers wait for Q first.
  static constexpr int kWorkReaders =
      4 * kWgs + (kTransposes ? kTransposers : 0) + (kCfg.v_producer() ? 1 : 0);
  static constexpr int kRawStages = kCfg.load.raw_v_stages;
  static constexpr int kMaskSlots = kCfg.mask.stages * kWgs;
  static constexpr int kSideBytes = kTransposes      ? kCfg.v_tile().bytes()
                                    : kMaskSlots > 0 ? kCfg.mask_tile().bytes()
                                                     : max(kCfg.parked_bytes(), 1);
  static constexpr int kSides = kTransposes               ? kRawStages
                                : kCfg.parked_bytes() > 0 ? kWgs
                                                          : max(kMaskSlots, 1);
  // Where O leaves through Q's buffer or from registers, its own is a byte that is never touched.
  static constexpr bool kHasO = kCfg.o_bytes() > 0;
  static_assert(kHasO || kCfg.output.f32 || kCfg.o_fits_q(), "output.in_q: O is larger than Q");
  static_assert(sizeof(FwdSharedWork) == FwdConfig::kWorkBytes, "config.h: kWorkBytes");

  alignas(1024) u8 q[kQSlots][kCfg.q_tile().bytes()];  // [stage][consumer]
  alignas(1024) u8 k[kStages][kCfg.k_tile().bytes()];
  alignas(1024) u8 v[kStages][kCfg.v_bytes()];  // as the GEMM reads it
  alignas(kHasO ? 1024 : 1) u8 o[kHasO ? kWgs : 1][kHasO ? kCfg.o_bytes() : 1];
  FwdSharedWork work[kWorkSlots];
  Barrier q_full[kQSlots], q_empty[kQSlots], k_full[kStages], k_empty[kStages], v_full[kStages],
      v_empty[kStages], work_full[kWorkSlots], work_empty[kWorkSlots], claim;
  // Where attn_mask is added, or V is transposed; else never touched.
  Barrier mask_full[max(kMaskSlots, 1)], mask_empty[max(kMaskSlots, 1)];
  Barrier raw_v_full[kTransposes ? kRawStages : 1], raw_v_empty[kTransposes ? kRawStages : 1];
  KnownPages<kCfg.load.cached(), kWorkSlots> pages;
  // V as it lies in memory, what attn_mask adds, [stage][consumer], or parked O; else a byte.
  alignas(kSideBytes > 1 ? 1024 : 1) u8 side[kSides][kSideBytes];
  FA3_NAMED(q, k, v, o, work, q_full, q_empty, k_full, k_empty, v_full, v_empty, work_full,
            work_empty, claim, mask_full, mask_empty, raw_v_full, raw_v_empty, pages, side)

  FA3_DEV void init_barriers() {
    for (int i = 0; i < kQSlots; ++i) q_full[i].init(1), q_empty[i].init(1);
    for (int s = 0; s < kStages; ++s) {
      constexpr u32 kFull = kv_arrivals(kCfg.load.kv);
      k_full[s].init(kFull), k_empty[s].init(kWgs);
      v_full[s].init(kTransposes ? kTransposers : kFull), v_empty[s].init(kWgs);
    }
    for (int i = 0; i < kMaskSlots; ++i) mask_full[i].init(1), mask_empty[i].init(4);
    if constexpr (kTransposes)
      for (int s = 0; s < kRawStages; ++s) raw_v_full[s].init(1), raw_v_empty[s].init(kTransposers);
    for (int r = 0; r < kWorkSlots; ++r) work_full[r].init(1), work_empty[r].init(kWorkReaders);
    claim.init(1);
    if constexpr (kCfg.load.cached())
      for (int r = 0; r < kWorkSlots; ++r) pages.known[r].init(1);
  }
};

}  // namespace fa3::sm90
