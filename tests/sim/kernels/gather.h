// SPDX-License-Identifier: BSD-3-Clause
// gather.h — rows chosen by a table, copied by cp.async into operands of wgmma, and a vector that
// an mbarrier announces; and the same with one line wrong.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/gemm.h"
#include "device/hopper/swizzle.h"
#include "device/ptx/async_copy.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/warp/fragment.h"

namespace fa3::faulty {

enum class GatherFault {
  kNone,
  kMissingWait,
  kWaitOfOneGroup,
  kFenceBeforeWait,
  kMissingFence,
  kMissingBarrier,
  kMissingVectorWait,
  kVectorCountOne,
  kMisaligned,
  kRowBeyondTable,
};

struct GatherArgs {
  const u16* rows;    // [128][64] BF16
  const u32* table;   // [64], rows of A; B is rows 64… in order
  const float* bias;  // [64], per column
  float* c;           // [64][64]
};

struct GatherSmem {
  alignas(1024) u8 a[64 * 128];
  alignas(1024) u8 b[64 * 128];
  alignas(16) float bias[64];
  Barrier bias_full;
  FA3_NAMED(a, b, bias, bias_full)
};

template <GatherFault kFault>
FA3_KERNEL(128, 1)
void gather_gemm(FA3_GRID_CONSTANT const GatherArgs args) {
  using F = GatherFault;
  auto& smem = ptx::smem_as<GatherSmem>();
  const u32 thread = ptx::thread_index();
  if (thread == 0) {
    smem.bias_full.init(kFault == F::kVectorCountOne ? 1 : 16);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  for (u32 i = thread; i < 512; i += 128) {  // B: 64 rows of 8 chunks
    const u32 row = i / 8, chunk = i % 8;
    ptx::cp_async_16(ptx::smem_address(smem.b + panel_offset(row, 16 * chunk, Swizzle::k128)),
                     args.rows + (64 + row) * 64 + 8 * chunk);
  }
  ptx::cp_async_commit();
  for (u32 i = thread; i < 512; i += 128) {
    const u32 row = i / 8, chunk = i % 8;
    const u32 source = ptx::ld_global(args.table + row) + (kFault == F::kRowBeyondTable ? 96 : 0);
    const u32 shift = kFault == F::kMisaligned ? 4 : 0;
    ptx::cp_async_16(ptx::smem_address(smem.a + panel_offset(row, 16 * chunk, Swizzle::k128)),
                     args.rows + source * 64 + 8 * chunk + shift);
  }
  ptx::cp_async_commit();
  if constexpr (kFault == F::kFenceBeforeWait) ptx::fence_proxy_async_shared();
  if constexpr (kFault == F::kWaitOfOneGroup) ptx::cp_async_wait<1>();
  if constexpr (kFault != F::kMissingWait && kFault != F::kWaitOfOneGroup) ptx::cp_async_wait<0>();
  if constexpr (kFault != F::kMissingFence && kFault != F::kFenceBeforeWait) {
    ptx::fence_proxy_async_shared();
  }
  if (thread < 16) {
    ptx::cp_async_16(ptx::smem_address(&smem.bias[4 * thread]), args.bias + 4 * thread);
    ptx::cp_async_mbar_arrive_noinc(smem.bias_full.address());
  }
  if constexpr (kFault != F::kMissingBarrier) ptx::cta_sync();
  using Tile = KMajorTile<Swizzle::k128, 64 * 128>;
  ptx::Acc<64> acc;
  gemm_ss<MmaType::kBf16, 4>(acc, tile_at<Tile>(smem.a), tile_at<Tile>(smem.b), kOverwrite);
  gemm_wait<0>(acc);
  if constexpr (kFault != F::kMissingVectorWait) smem.bias_full.wait(0);
  for (int i = 0; i < acc.size(); i += 2) {
    const Place place = accumulator_place(thread, static_cast<u32>(i));
    using Pair = ptx::Vec<float, 2>;
    const Pair bias = ptx::ld_shared(reinterpret_cast<const Pair*>(&smem.bias[place.column]));
    ptx::st_global(reinterpret_cast<Pair*>(args.c + place.row * 64 + place.column),
                   Pair{acc[i] + bias[0], acc[i + 1] + bias[1]});
  }
}

}  // namespace fa3::faulty
