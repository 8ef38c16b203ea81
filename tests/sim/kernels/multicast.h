// SPDX-License-Identifier: BSD-3-Clause
// multicast.h — C = A·Bᵀ by clusters of two CTAs: each has rows of A of its own and loads half of B
// for both; rank 1 then, kSum, sends a value to rank 0. And the same with one line wrong.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/gemm.h"
#include "device/hopper/ring.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/warp/fragment.h"

namespace fa3::faulty {

enum class MulticastFault {
  kNone,
  kCtaSyncOnly,
  kMissingClusterWait,
  kEarlyRemoteStore,
  kExpectOwnHalf,
  kReleaseOwnOnly,
  kReleaseTwice,
  kEmptyCountOwn,
  kMissingEmptyWait,
  kMissingTail,
  kMaskOfThree,
  kMissingSumBarrier,
  kRelaxedSumBarrier,
  kRankTwo,
};

struct MulticastArgs {
  TensorMap a, b;  // [128][k] with boxes of 64 × 64 rows; [64][k] with boxes of 64 × 32 rows
  float* c;        // [128][64]
  float* sum;      // of each thread's first element in both CTAs
  u32 tiles_k;
};

struct MulticastSmem {
  alignas(1024) u8 a[2][64 * 128];
  alignas(1024) u8 b[2][64 * 128];
  float sums[128];
  Barrier full[2], empty[2];
  FA3_NAMED(a, b, sums, full, empty)
};

template <MulticastFault kFault>
FA3_DEV void multicast_produce(MulticastSmem& smem, const MulticastArgs& args) {
  using F = MulticastFault;
  const u32 rank = ptx::cluster_rank();
  constexpr u32 kBytes =
      sizeof(smem.a[0]) + sizeof(smem.b[0]) / (kFault == F::kExpectOwnHalf ? 2 : 1);
  constexpr u16 kMask = kFault == F::kMaskOfThree ? 7 : 3;
  const u32 half = rank * sizeof(smem.b[0]) / 2;
  auto ring = Ring<2>::producer();
  for (u32 tile = 0; tile < args.tiles_k; ++tile, ring.advance()) {
    const i32 k = static_cast<i32>(64 * tile);
    const u32 full = smem.full[ring.stage].address();
    if constexpr (kFault != F::kMissingEmptyWait) smem.empty[ring.stage].wait(ring.phase);
    smem.full[ring.stage].arrive_expect_tx(kBytes);
    ptx::tma_load_2d(ptx::smem_address(smem.a[ring.stage]), args.a, full, k,
                     static_cast<i32>(64 * rank));
    ptx::tma_load_multicast_2d(ptx::smem_address(smem.b[ring.stage]) + half, args.b, full, k,
                               static_cast<i32>(32 * rank), kMask);
  }
  if constexpr (kFault != F::kMissingTail) {
    // No arrival of the other CTA may be in flight when this one ends.
    for (int stage = 0; stage < 2; ++stage, ring.advance()) smem.empty[ring.stage].wait(ring.phase);
  }
}

template <MulticastFault kFault>
FA3_DEV void multicast_release(Barrier& empty) {
  using F = MulticastFault;
  const u32 thread = ptx::thread_index() % 128;
  if (thread >= 2) return;
  if constexpr (kFault == F::kReleaseTwice) {
    empty.arrive_at(ptx::cluster_rank());
  } else if constexpr (kFault == F::kReleaseOwnOnly) {
    if (thread == 0) empty.arrive_at(ptx::cluster_rank());
  } else {
    empty.arrive_at(kFault == F::kRankTwo ? 2 * thread : thread);
  }
}

template <MulticastFault kFault>
FA3_DEV void multicast_consume(MulticastSmem& smem, const MulticastArgs& args, float& first) {
  const u32 thread = ptx::thread_index() % 128, rank = ptx::cluster_rank();
  using Tile = KMajorTile<Swizzle::k128, 64 * 128>;
  ptx::Acc<64> acc;
  Ring<2> ring;
  for (u32 tile = 0; tile < args.tiles_k; ++tile, ring.advance()) {
    smem.full[ring.stage].wait(ring.phase);
    gemm_ss<MmaType::kBf16, 4>(acc, tile_at<Tile>(smem.a[ring.stage]),
                               tile_at<Tile>(smem.b[ring.stage]), tile > 0);
    gemm_wait<0>(acc);
    multicast_release<kFault>(smem.empty[ring.stage]);
  }
  for (int i = 0; i < acc.size(); i += 2) {
    const Place place = accumulator_place(thread, static_cast<u32>(i));
    ptx::st_global(
        reinterpret_cast<ptx::Vec<float, 2>*>(args.c + (64 * rank + place.row) * 64 + place.column),
        ptx::Vec<float, 2>{acc[i], acc[i + 1]});
  }
  first = acc[0];
}

template <MulticastFault kFault, bool kSum>
FA3_KERNEL(256, 1)
void multicast_gemm(FA3_GRID_CONSTANT const MulticastArgs args) {
  using F = MulticastFault;
  auto& smem = ptx::smem_as<MulticastSmem>();
  const u32 wg = ptx::warpgroup_index(), rank = ptx::cluster_rank();
  if (ptx::thread_index() == 0) {
    for (int s = 0; s < 2; ++s) {
      smem.full[s].init(1);
      smem.empty[s].init(kFault == F::kEmptyCountOwn ? 1 : 2);  // a thread of each CTA's consumer
    }
    ptx::fence_mbar_init();
  }
  if constexpr (kFault == F::kEarlyRemoteStore) {
    ptx::st_shared_cluster(ptx::map_to_rank(ptx::smem_address(&smem.sums[0]), 1 - rank), 0.0f);
  }
  if constexpr (kFault == F::kCtaSyncOnly) {
    ptx::cta_sync();
  } else {
    ptx::cluster_arrive_relaxed();
    if constexpr (kFault != F::kMissingClusterWait) ptx::cluster_wait();
  }
  float first = 0;
  if (wg == 0) {
    if (ptx::warp_index() == 0 && ptx::elect_one()) multicast_produce<kFault>(smem, args);
    ptx::warp_sync();
  } else {
    multicast_consume<kFault>(smem, args, first);
    const u32 thread = ptx::thread_index() % 128;
    if (kSum && rank == 1) {
      ptx::st_shared_cluster(ptx::map_to_rank(ptx::smem_address(&smem.sums[thread]), 0), first);
    }
  }
  if constexpr (kFault == F::kRelaxedSumBarrier) {
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  } else if constexpr (kSum && kFault != F::kMissingSumBarrier) {
    ptx::cluster_sync();
  }
  if (kSum && wg == 1 && rank == 0) {
    const u32 thread = ptx::thread_index() % 128;
    ptx::st_global(args.sum + thread, first + ptx::ld_shared(&smem.sums[thread]));
  }
}

}  // namespace fa3::faulty
