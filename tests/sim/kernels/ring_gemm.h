// SPDX-License-Identifier: BSD-3-Clause
// ring_gemm.h — C = A·Bᵀ through a ring of stages: a producer thread, two consumer warpgroups that
// take turns on the tensor cores; and the same with one line wrong.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/descriptor.h"
#include "device/hopper/ring.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/ptx/wgmma.h"
#include "device/warp/fragment.h"

namespace fa3::faulty {

enum class RingFault {
  kNone,
  kMissingFullWait,
  kMissingEmptyWait,
  kReleaseBeforeWait,
  kReadBeforeWait,
  kMissingCommit,
  kMissingInitFence,
  kMissingCtaSync,
  kExpectTwice,
  kExpectHalf,
  kProducerParity,
  kPhaseNotFlipped,
  kEmptyCount1,
  kEmptyCount128,
  kDoubleArrive,
  kReleaseByEveryLane,
  kSameGroupReleasesTwice,
  kAccumulateAtFirst,
  kSwappedOffsets,
  kSwizzle64,
  kStageAt512,
  kRegisters,
  kNoRegistersGivenBack,
  kTurnOfOneId,
};

struct RingArgs {
  TensorMap a, b;  // boxes of 64 columns × 128 and 64 rows, swizzle 128
  float* c;        // [128][64]
  u32 tiles_k;
};

inline constexpr int kRingStages = 2;

struct RingSmem {
  alignas(1024) u8 a[kRingStages][128 * 128];
  alignas(1024) u8 b[kRingStages][64 * 128];
  Barrier full[kRingStages], empty[kRingStages];
  FA3_NAMED(a, b, full, empty)
};

template <RingFault kFault>
FA3_DEV void ring_produce(RingSmem& smem, const RingArgs& args) {
  using F = RingFault;
  constexpr u32 kBytes = sizeof(smem.a[0]) + sizeof(smem.b[0]);
  constexpr u32 kExpected = kFault == F::kExpectTwice  ? 2 * kBytes
                            : kFault == F::kExpectHalf ? kBytes / 2
                                                       : kBytes;
  constexpr u32 kStart = kFault == F::kStageAt512 ? 512 : 0;
  auto ring = kFault == F::kProducerParity ? Ring<kRingStages>{} : Ring<kRingStages>::producer();
  for (u32 tile = 0; tile < args.tiles_k; ++tile, ring.advance()) {
    const i32 k = 64 * static_cast<i32>(tile);
    if constexpr (kFault != F::kMissingEmptyWait) smem.empty[ring.stage].wait(ring.phase);
    smem.full[ring.stage].arrive_expect_tx(kExpected);
    const u32 full = smem.full[ring.stage].address();
    ptx::tma_load_2d(ptx::smem_address(smem.b[ring.stage]), args.b, full, k, 0);
    ptx::tma_load_2d(ptx::smem_address(smem.a[ring.stage]) + kStart, args.a, full, k, 0);
  }
}

template <RingFault kFault>
FA3_DEV void ring_consume(RingSmem& smem, const RingArgs& args, u32 wg) {
  using F = RingFault;
  const bool leader = ptx::thread_index() % 128 == 0;
  const u32 warp = ptx::warp_index() % 4;
  const NamedBarrier turn{kFault == F::kTurnOfOneId ? 1 : 1 + wg, 256}, other{2 - wg, 256};
  ptx::Acc<64> acc;
  Ring<kRingStages> ring;
  if (wg == 1) other.arrive();  // the first turn
  for (u32 tile = 0; tile < args.tiles_k; ++tile) {
    if constexpr (kFault != F::kMissingFullWait) smem.full[ring.stage].wait(ring.phase);
    u64 a = tile_at<KMajorTile<Swizzle::k128, 128 * 128>>(smem.a[ring.stage])
                .from_row(64 * wg)
                .base.bits;
    if constexpr (kFault == F::kSwappedOffsets) {
      a = SmemDesc::make(ptx::smem_address(smem.a[ring.stage]) + 8192 * wg, 1024, 16, Swizzle::k128)
              .bits;
    }
    if constexpr (kFault == F::kSwizzle64) a ^= u64{3} << 62;
    const u64 b = tile_at<KMajorTile<Swizzle::k128, 64 * 128>>(smem.b[ring.stage]).base.bits;
    turn.sync();
    ptx::wgmma_fence();
    for (u32 s = 0; s < 4; ++s) {
      const bool accumulate = kFault == F::kAccumulateAtFirst || tile + s > 0;
      ptx::wgmma_ss<MmaType::kBf16, 64>(acc, a + 2 * s, b + 2 * s, accumulate);
    }
    if constexpr (kFault != F::kMissingCommit) ptx::wgmma_commit();
    other.arrive();
    if constexpr (kFault == F::kReleaseBeforeWait) smem.empty[ring.stage].arrive_if(leader);
    if constexpr (kFault != F::kReadBeforeWait) ptx::wgmma_wait<0>();
    if constexpr (kFault == F::kReadBeforeWait) acc[0] *= 1;
    if constexpr (kFault == F::kDoubleArrive) smem.empty[ring.stage].arrive_if(leader && tile == 1);
    const bool releases = kFault == F::kReleaseByEveryLane       ? warp == 0
                          : kFault == F::kSameGroupReleasesTwice ? leader && wg == 0
                                                                 : leader;
    if constexpr (kFault != F::kReleaseBeforeWait) smem.empty[ring.stage].arrive_if(releases);
    if constexpr (kFault == F::kSameGroupReleasesTwice) smem.empty[ring.stage].arrive_if(releases);
    ring.advance();
    if constexpr (kFault == F::kPhaseNotFlipped) ring.phase = 0;
  }
  for (int i = 0; i < acc.size(); i += 2) {
    const Place place = accumulator_place(ptx::thread_index() % 128, static_cast<u32>(i));
    ptx::st_global(
        reinterpret_cast<ptx::Vec<float, 2>*>(args.c + (64 * wg + place.row) * 64 + place.column),
        ptx::Vec<float, 2>{acc[i], acc[i + 1]});
  }
}

template <RingFault kFault>
FA3_KERNEL(384, 1)
void ring_gemm(FA3_GRID_CONSTANT const RingArgs args) {
  using F = RingFault;
  auto& smem = ptx::smem_as<RingSmem>();
  const u32 wg = ptx::warpgroup_index();
  if (ptx::thread_index() == 0) {
    for (int s = 0; s < kRingStages; ++s) {
      smem.full[s].init(1);
      smem.empty[s].init(kFault == F::kEmptyCount1 ? 1 : kFault == F::kEmptyCount128 ? 128 : 2);
    }
    if constexpr (kFault != F::kMissingInitFence) ptx::fence_mbar_init();
  }
  if constexpr (kFault != F::kMissingCtaSync) ptx::cta_sync();
  if (wg == 0) {
    if constexpr (kFault != F::kNoRegistersGivenBack) {
      ptx::reg_decrease<kFault == F::kRegisters ? 40 : 24>();
    }
    if (ptx::warp_index() == 0 && ptx::elect_one()) ring_produce<kFault>(smem, args);
  } else {
    ptx::reg_increase<240>();
    ring_consume<kFault>(smem, args, wg - 1);
  }
}

}  // namespace fa3::faulty
