// SPDX-License-Identifier: BSD-3-Clause
// store.h — an epilogue: stmatrix → proxy fence → named barrier → TMA store, through three buffers
// per warpgroup; and the same with one line wrong.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/operand.h"
#include "device/hopper/swizzle.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"

namespace fa3::faulty {

enum class StoreFault {
  kNone,
  kMissingFence,
  kMissingBarrier,
  kFenceByOneThread,
  kWaitByAnotherThread,
  kWaitOneTooMany,
  kExitInFlight,
  kNoCommit,
  kSharedBarrier,
  kBarrierOfTwoCounts,
  kBarrierOfTooMany,
  kBarrierId16,
  kElectDivergent,
  kLanesMissing,
  kWrongRow,
  kBeyondBuffer,
  kNegativeRow,
};

struct StoreArgs {
  TensorMap c;  // [2 · tiles · 64][64] BF16, boxes of 64 columns × 64 rows, swizzle 128
  u32 tiles;    // of each warpgroup
};

inline constexpr u32 kStoreBuffers = 3;

struct StoreSmem {
  alignas(1024) u8 c[2 * kStoreBuffers][64 * 128];
  FA3_NAMED(c)
};

// What the tile's row and column hold.
FA3_HD constexpr float store_value(u32 wg, u32 tile, u32 row, u32 column) {
  return static_cast<float>((row * 5 + column * 3 + tile * 7 + wg) % 101);
}

template <StoreFault kFault>
FA3_KERNEL(256, 1)
void store_tiles(FA3_GRID_CONSTANT const StoreArgs args) {
  using F = StoreFault;
  auto& smem = ptx::smem_as<StoreSmem>();
  const u32 wg = ptx::warpgroup_index(), warp = ptx::warp_index() % 4, lane = ptx::lane_index();
  constexpr u32 kId = kFault == F::kBarrierId16 ? 15 : 1;
  constexpr u32 kThreads = kFault == F::kBarrierOfTooMany ? 160 : 128;
  const NamedBarrier written{kFault == F::kSharedBarrier ? kId : kId + wg,
                             kFault == F::kBarrierOfTwoCounts && warp == 1 ? 64 : kThreads};
  const bool leader = warp == 0 && lane == 0;
  u32 buffer = 0;
  for (u32 tile = 0; tile < args.tiles; ++tile) {
    u8* to = smem.c[kStoreBuffers * wg + buffer];
    for (u32 step = 0; step < 4; ++step) {
      ptx::Vec<u32, 4> packed;
      for (u32 r = 0; r < 4; ++r) {
        const u32 row = fragment_row(32 * warp + lane) + 8 * (r % 2);
        const u32 column = 16 * step + 8 * (r / 2) + 2 * (lane % 4);
        packed[static_cast<int>(r)] = ptx::pack_bf16(store_value(wg, tile, row, column),
                                                     store_value(wg, tile, row, column + 1));
      }
      const u32 row = kFault == F::kWrongRow ? 16 * warp + lane / 2 : 16 * warp + lane % 16;
      if constexpr (kFault == F::kLanesMissing) {
        if (lane < 16)
          ptx::stmatrix_x4(to + panel_offset(row, 32 * step + lane / 16 * 16, Swizzle::k128),
                           packed);
      } else {
        ptx::stmatrix_x4(to + panel_offset(row, 32 * step + lane / 16 * 16, Swizzle::k128), packed);
      }
    }
    if constexpr (kFault == F::kFenceByOneThread) {
      if (leader) ptx::fence_proxy_async_shared();
    } else if constexpr (kFault != F::kMissingFence) {
      ptx::fence_proxy_async_shared();
    }
    // The buffer that is written next was stored from two tiles ago.
    constexpr int kPending = kFault == F::kWaitOneTooMany ? kStoreBuffers - 1 : kStoreBuffers - 2;
    const bool waits = kFault == F::kWaitByAnotherThread ? warp == 0 && lane == 1 : leader;
    if (waits) ptx::bulk_wait_read<kPending>();
    if constexpr (kFault != F::kMissingBarrier) written.sync();
    bool stores = leader;
    if constexpr (kFault == F::kElectDivergent) stores = leader && ptx::elect_one();
    if (stores) {
      const i32 row =
          kFault == F::kNegativeRow ? -64 : static_cast<i32>(64 * (args.tiles * wg + tile));
      ptx::tma_store_2d(args.c, ptx::smem_address(to) + (kFault == F::kBeyondBuffer ? 0xC000 : 0),
                        0, row);
      if constexpr (kFault != F::kNoCommit) ptx::bulk_commit();
    }
    if (++buffer == kStoreBuffers) buffer = 0;
  }
  if constexpr (kFault != F::kExitInFlight) {
    if (leader) ptx::bulk_wait_read<0>();
  }
}

}  // namespace fa3::faulty
