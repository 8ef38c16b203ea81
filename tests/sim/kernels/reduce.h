// SPDX-License-Identifier: BSD-3-Clause
// reduce.h — the gradient of Q: dS goes through shared memory into dQ = dSᵀ·K, dQ in FP32 through
// shared memory to a writer warp, which adds it to global memory in bulk; two CTAs add to the same
// rows. And the same with one line wrong.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/warp/fragment.h"

namespace fa3::faulty {

enum class ReduceFault {
  kNone,
  kMissingScoreFence,
  kMissingScoreBarrier,
  kWarpSyncForBarrier,
  kMissingSumFence,
  kMissingEmptyBarrier,
  kMissingReadWait,
  kWaitByAnotherLane,
  kCountWithoutWriter,
  kStoreNotReduce,
  kNotPrimed,
  kPrimedTwice,
};

struct ReduceArgs {
  TensorMap k;  // BF16 [64][64], one box, swizzle 128
  float* dq;    // [64 · 64] in the order of dq_slot()
  u32 tiles;
};

struct ReduceSmem {
  alignas(1024) u8 k[64 * 128];
  alignas(1024) u8 ds[64 * 128];     // [key][query]: A, MN-major
  alignas(1024) float dq[128 * 32];  // thread by thread
  Barrier k_full;
  FA3_NAMED(k, ds, dq, k_full)
};

FA3_HD constexpr float score_gradient(u32 block, u32 tile, u32 row, u32 column) {
  return static_cast<float>((row * 3 + column * 5 + tile + 2 * block) % 5) - 2;
}
// Where register i of a thread's sum lies: float4 by float4, so that a warp's stores have no bank
// conflicts.
FA3_HD constexpr u32 dq_slot(u32 thread, u32 i) { return i / 4 * 512 + thread * 4 + i % 4; }

inline constexpr NamedBarrier kSumFull{2, 160}, kSumEmpty{3, 160};

template <ReduceFault kFault>
FA3_DEV void reduce_write(ReduceSmem& smem, const ReduceArgs& args) {
  using F = ReduceFault;
  const u32 lane = ptx::lane_index();
  const NamedBarrier empty{kSumEmpty.id,
                           kFault == F::kCountWithoutWriter ? 128 : kSumEmpty.threads};
  if constexpr (kFault != F::kNotPrimed) empty.arrive();
  if constexpr (kFault == F::kPrimedTwice) empty.arrive();
  for (u32 tile = 0; tile < args.tiles; ++tile) {
    kSumFull.sync();
    if (lane == 0) {
      if constexpr (kFault == F::kStoreNotReduce) {
        ptx::bulk_store(args.dq, ptx::smem_address(smem.dq), sizeof(smem.dq));
      } else {
        ptx::bulk_reduce_add_f32(args.dq, ptx::smem_address(smem.dq), sizeof(smem.dq));
      }
      ptx::bulk_commit();
    }
    if constexpr (kFault != F::kMissingReadWait) {
      if (lane == (kFault == F::kWaitByAnotherLane ? 1 : 0)) ptx::bulk_wait_read<0>();
    }
    if (tile + 1 < args.tiles) empty.arrive();
  }
  if (lane == 0) ptx::bulk_wait<0>();
}

template <ReduceFault kFault>
FA3_DEV void reduce_compute(ReduceSmem& smem, const ReduceArgs& args) {
  using F = ReduceFault;
  const u32 thread = ptx::thread_index() % 128, warp = thread / 32, lane = thread % 32;
  if (thread == 0) {
    smem.k_full.arrive_expect_tx(sizeof(smem.k));
    ptx::tma_load_2d(ptx::smem_address(smem.k), args.k, smem.k_full.address(), 0, 0);
  }
  smem.k_full.wait(0);
  for (u32 tile = 0; tile < args.tiles; ++tile) {
    for (u32 step = 0; step < 4; ++step) {
      ptx::Vec<u32, 4> packed;
      for (u32 r = 0; r < 4; ++r) {
        const u32 row = fragment_row(thread) + 8 * (r % 2);
        const u32 column = 16 * step + 8 * (r / 2) + 2 * (lane % 4);
        const u32 block = ptx::block_index_x();
        packed[static_cast<int>(r)] = ptx::pack_bf16(score_gradient(block, tile, row, column),
                                                     score_gradient(block, tile, row, column + 1));
      }
      ptx::stmatrix_x4(
          smem.ds + panel_offset(16 * warp + lane % 16, 32 * step + lane / 16 * 16, Swizzle::k128),
          packed);
    }
    if constexpr (kFault != F::kMissingScoreFence) ptx::fence_proxy_async_shared();
    // Transposed, a warp's rows of A are columns of all warps' rows of dS.
    if constexpr (kFault == F::kWarpSyncForBarrier) ptx::warp_sync();
    if constexpr (kFault != F::kMissingScoreBarrier && kFault != F::kWarpSyncForBarrier) {
      NamedBarrier{1, 128}.sync();
    }
    ptx::Acc<64> sum;
    using Tile = MnMajorTile<Swizzle::k128, 64 * 128>;
    gemm_ss<MmaType::kBf16, 4>(sum, tile_at<Tile>(smem.ds), tile_at<Tile>(smem.k), kOverwrite);
    gemm_wait<0>(sum);
    if constexpr (kFault != F::kMissingEmptyBarrier) kSumEmpty.sync();
    for (int i = 0; i < sum.size(); i += 4) {
      ptx::st_shared(
          reinterpret_cast<ptx::Vec<float, 4>*>(&smem.dq[dq_slot(thread, static_cast<u32>(i))]),
          ptx::Vec<float, 4>{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]});
    }
    if constexpr (kFault != F::kMissingSumFence) ptx::fence_proxy_async_shared();
    kSumFull.arrive();
    // All warps have read dS before any writes it again.
    NamedBarrier{1, 128}.sync();
  }
}

template <ReduceFault kFault>
FA3_KERNEL(256, 1)
void reduce_gradient(FA3_GRID_CONSTANT const ReduceArgs args) {
  auto& smem = ptx::smem_as<ReduceSmem>();
  const u32 wg = ptx::warpgroup_index();
  if (ptx::thread_index() == 0) {
    smem.k_full.init(1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (wg == 0) {
    if (ptx::warp_index() == 0) reduce_write<kFault>(smem, args);
  } else {
    reduce_compute<kFault>(smem, args);
  }
}

}  // namespace fa3::faulty
