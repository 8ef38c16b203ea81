// SPDX-License-Identifier: BSD-3-Clause
// handoff.h — data that passes between CTAs of one grid, and from one grid to the next: a CTA
// writes a tile and raises a flag, another waits for the flag and loads the tile, by TMA or itself;
// the next grid doubles what it finds. And the same with one line wrong.
#pragma once

#include "device/hopper/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"

namespace fa3::faulty {

enum class HandoffFault {
  kNone,
  kRelaxedStore,
  kRelaxedLoad,
  kMissingFlagWait,
  kMissingSync,
  kMissingProxyFence,
  kMissingPdlWait,
  kMissingPdlSync,
  kOverlap,
};

struct HandoffArgs {
  float* tile;    // [32][32]
  u32* flag;      // 0 before the launch
  float* copy;    // [32][32]
  float* twice;   // [32][32]
  TensorMap map;  // of tile, one box
};

struct HandoffSmem {
  alignas(128) float tile[32 * 32];
  Barrier full;
  FA3_NAMED(tile, full)
};

// kFences: with fence.acq_rel.gpu around relaxed accesses, in place of release and acquire.
template <HandoffFault kFault, bool kFences, bool kTma>
FA3_KERNEL(64, 1)
void hand_off(FA3_GRID_CONSTANT const HandoffArgs args) {
  using F = HandoffFault;
  auto& smem = ptx::smem_as<HandoffSmem>();
  const u32 thread = ptx::thread_index();
  if (ptx::block_index_x() == 0) {
    for (u32 i = thread; i < 1024; i += 64) ptx::st_global(args.tile + i, static_cast<float>(i));
    if constexpr (kTma && kFault != F::kMissingProxyFence) ptx::fence_proxy_async_global();
    if constexpr (kFault != F::kMissingSync) ptx::cta_sync();
    if (thread == 0) {
      if constexpr (kFences && kFault != F::kRelaxedStore) ptx::fence_acq_rel_gpu();
      if constexpr (kFences || kFault == F::kRelaxedStore) {
        ptx::st_relaxed_gpu(args.flag, 1u);
      } else {
        ptx::st_release_gpu(args.flag, 1u);
      }
    }
    if constexpr (kFault == F::kOverlap) ptx::st_global(args.copy + thread, 0.0f);
    return;
  }
  if (thread == 0) {
    smem.full.init(1);
    ptx::fence_mbar_init();
  }
  if constexpr (kFault != F::kMissingFlagWait) {
    if (thread == 0) {
      if constexpr (kFences || kFault == F::kRelaxedLoad) {
        while (ptx::ld_relaxed_gpu(args.flag) == 0) ptx::nanosleep(20);
      } else {
        while (ptx::ld_acquire_gpu(args.flag) == 0) ptx::nanosleep(20);
      }
      if constexpr (kFences && kFault != F::kRelaxedLoad) ptx::fence_acq_rel_gpu();
    }
  }
  ptx::cta_sync();
  if constexpr (kTma) {
    if (thread == 0) {
      smem.full.arrive_expect_tx(sizeof(smem.tile));
      ptx::tma_load_2d(ptx::smem_address(smem.tile), args.map, smem.full.address(), 0, 0);
    }
    smem.full.wait(0);
  }
  for (u32 i = thread; i < 1024; i += 64) {
    ptx::st_global(args.copy + i,
                   kTma ? ptx::ld_shared(&smem.tile[i]) : ptx::ld_global(args.tile + i));
  }
}

// Launched with programmatic dependence on the grid before.
template <HandoffFault kFault>
FA3_KERNEL(64, 1)
void double_copy(FA3_GRID_CONSTANT const HandoffArgs args) {
  using F = HandoffFault;
  const u32 thread = ptx::thread_index();
  if constexpr (kFault != F::kMissingPdlWait) {
    if (thread == 0) ptx::pdl_wait();
  }
  if constexpr (kFault != F::kMissingPdlSync) ptx::cta_sync();
  for (u32 i = thread; i < 1024; i += 64) {
    ptx::st_global(args.twice + i, 2 * ptx::ld_global(args.copy + i));
  }
  ptx::pdl_launch();
}

}  // namespace fa3::faulty
