// SPDX-License-Identifier: BSD-3-Clause
// varlen_store.h — varlen sequences, one CTA each: whole tiles go out by TMA, the
// ragged last one by its rows; and the same with TMA for the last one, too.
#pragma once

#include "device/hopper/barrier.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"

namespace fa3::faulty {

enum class VarlenFault { kNone, kTailByTma, kBeginOfNext };

struct VarlenArgs {
  TensorMap o;  // FP32 [total][32], boxes of 32 columns × 16 rows
  float* rows;  // the same
  const u32* cu_seqlens;
};

struct VarlenSmem {
  alignas(128) float tile[16 * 32];
  FA3_NAMED(tile)
};

FA3_HD constexpr float varlen_value(u32 row, u32 column) {
  return static_cast<float>(row * 32 + column);
}

template <VarlenFault kFault>
FA3_KERNEL(128, 1)
void varlen_store(FA3_GRID_CONSTANT const VarlenArgs args) {
  using F = VarlenFault;
  auto& smem = ptx::smem_as<VarlenSmem>();
  const u32 thread = ptx::thread_index(), row = thread / 8, column = thread % 8 * 4;
  using Four = ptx::Vec<float, 4>;
  auto* place = reinterpret_cast<Four*>(&smem.tile[row * 32 + column]);
  const u32 sequence = ptx::block_index_x();
  const u32 begin = ptx::ld_global(args.cu_seqlens + sequence);
  const u32 end =
      ptx::ld_global(args.cu_seqlens + sequence + 1) + (kFault == F::kBeginOfNext ? 1 : 0);
  for (u32 first = begin; first < end; first += 16) {
    const u32 at = first + row;
    ptx::st_shared(place, Four{varlen_value(at, column), varlen_value(at, column + 1),
                               varlen_value(at, column + 2), varlen_value(at, column + 3)});
    ptx::fence_proxy_async_shared();
    ptx::cta_sync();
    if (kFault == F::kTailByTma || first + 16 <= end) {
      if (thread == 0) {
        ptx::tma_store_2d(args.o, ptx::smem_address(smem.tile), 0, static_cast<i32>(first));
        ptx::bulk_commit();
        ptx::bulk_wait_read<0>();
      }
    } else if (at < end) {
      ptx::st_global(reinterpret_cast<Four*>(args.rows + at * 32 + column), ptx::ld_shared(place));
    }
    ptx::cta_sync();
  }
}

}  // namespace fa3::faulty
