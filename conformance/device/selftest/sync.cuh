// SPDX-License-Identifier: BSD-3-Clause
// sync.cuh — conformance of what orders warps, the CTAs of a cluster and grids: named barriers,
// cluster barriers and distributed shared memory, griddepcontrol.
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/mbarrier.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"

namespace fa3::selftest {

// ---- Named barriers -----------------------------------------------------------------------------

inline constexpr u32 kNamedRounds = 12;

struct NamedArgs {
  const u32* in;  // [round][32]
  u32* out;       // prefix sums of the rounds
};

struct NamedSmem {
  u32 slot[32];
  u32 passed[32];
  FA3_NAMED(slot, passed)
};

// Warp 0 hands a row to warp 1 (barrier 1), which hands it on to warp 2 (barrier 15) and gives the
// slot back (barrier 2); warp 2 gives back its own (barrier 3). The sender of a row does not wait.
FA3_KERNEL(96)
void named_barriers(FA3_GRID_CONSTANT const NamedArgs args) {
  auto& smem = ptx::smem_as<NamedSmem>();
  const u32 warp = ptx::warp_index(), lane = ptx::lane_index();
  u32 sum = 0;
  for (u32 round = 0; round < kNamedRounds; ++round) {
    if (warp == 0) {
      if (round > 0) ptx::bar_sync(2, 64);
      ptx::st_shared(&smem.slot[lane], ptx::ld_global(args.in + 32 * round + lane));
      ptx::bar_arrive(1, 64);
    } else if (warp == 1) {
      ptx::bar_sync(1, 64);
      const u32 value = ptx::ld_shared(&smem.slot[lane ^ 31]);
      if (round + 1 < kNamedRounds) ptx::bar_arrive(2, 64);
      if (round > 0) ptx::bar_sync(3, 64);
      ptx::st_shared(&smem.passed[lane], value);
      ptx::bar_arrive(15, 64);
    } else {
      ptx::bar_sync(15, 64);
      sum += ptx::ld_shared(&smem.passed[lane ^ 31]);
      if (round + 1 < kNamedRounds) ptx::bar_arrive(3, 64);
      ptx::st_global(args.out + 32 * round + lane, sum);
    }
  }
}

// ---- Clusters -----------------------------------------------------------------------------------

inline constexpr u32 kMaxCluster = 8;

struct ClusterArgs {
  const u32* in;  // [CTA][32]
  u32* sent;      // [CTA][rank][32]: what each CTA of the cluster stored here
  u32* read;      // [CTA][rank][32]: what this one loaded from each
  u32* copied;    // [CTA][32]: from the CTA before it, by a bulk copy
};

struct ClusterSmem {
  alignas(16) u32 own[32];
  alignas(16) u32 copied[32];
  u32 sent[kMaxCluster][32];
  alignas(8) u64 arrivals;  // one of each CTA of the cluster
  alignas(8) u64 full;      // own thread 0, and the bytes of the copy
  FA3_NAMED(own, copied, sent, arrivals, full)
};

FA3_KERNEL(32)
void cluster(FA3_GRID_CONSTANT const ClusterArgs args) {
  auto& smem = ptx::smem_as<ClusterSmem>();
  const u32 lane = ptx::lane_index(), rank = ptx::cluster_rank(), size = ptx::cluster_size();
  const u32 cta = ptx::block_index_x();
  const u32 arrivals = ptx::smem_address(&smem.arrivals), full = ptx::smem_address(&smem.full);
  const u32 value = ptx::ld_global(args.in + 32 * cta + lane);
  if (lane == 0) {
    ptx::mbar_init(arrivals, size);
    ptx::mbar_init(full, 1);
    ptx::fence_mbar_init();
    ptx::mbar_arrive_expect_tx(full, sizeof smem.copied);
  }
  ptx::st_shared(&smem.own[lane], value);
  ptx::fence_proxy_async_shared();
  ptx::cluster_sync();
  for (u32 to = 0; to < size; ++to) {
    ptx::st_shared_cluster(ptx::map_to_rank(ptx::smem_address(&smem.sent[rank][lane]), to),
                           value + to);
    const u32 from = ptx::map_to_rank(ptx::smem_address(&smem.own[lane]), to);
    ptx::st_global(args.read + (cta * size + to) * 32 + lane, ptx::ld_shared_cluster<u32>(from));
  }
  ptx::warp_sync();
  if (lane == 0) {
    for (u32 to = 0; to < size; ++to) ptx::mbar_arrive_cluster(ptx::map_to_rank(arrivals, to));
    const u32 next = (rank + 1) % size;
    ptx::bulk_copy_to_cluster(ptx::map_to_rank(ptx::smem_address(smem.copied), next),
                              ptx::smem_address(smem.own), sizeof smem.own,
                              ptx::map_to_rank(full, next));
  }
  ptx::warp_sync();
  ptx::mbar_wait_cluster(arrivals, 0);
  for (u32 from = 0; from < size; ++from) {
    ptx::st_global(args.sent + (cta * size + from) * 32 + lane,
                   ptx::ld_shared(&smem.sent[from][lane]));
  }
  ptx::mbar_wait_cluster(full, 0);
  ptx::st_global(args.copied + 32 * cta + lane, ptx::ld_shared(&smem.copied[lane]));
  ptx::cluster_sync();  // no CTA exits while its shared memory may be in use
}

// ---- Dependent grids ----------------------------------------------------------------------------

struct DependentArgs {
  u32* value;  // [CTA][32]
};

// value = 3 · value + 1 of the mirrored CTA's words, so that a grid reads what other CTAs of the
// one before it wrote; the next grid may start before they have.
FA3_KERNEL(32)
void dependent(FA3_GRID_CONSTANT const DependentArgs args) {
  ptx::pdl_launch();
  ptx::pdl_wait();
  const u32 cta = ptx::block_index_x(), other = ptx::grid_dim_x() - 1 - cta;
  const u32 lane = ptx::thread_index();
  if (cta > other) return;  // one CTA of each pair swaps both
  const u32 a = ptx::ld_global(args.value + 32 * cta + lane);
  const u32 b = ptx::ld_global(args.value + 32 * other + lane);
  ptx::st_global(args.value + 32 * other + lane, 3 * a + 1);
  ptx::st_global(args.value + 32 * cta + lane, 3 * b + 1);
}

}  // namespace fa3::selftest
