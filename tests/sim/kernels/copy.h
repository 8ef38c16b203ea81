// SPDX-License-Identifier: BSD-3-Clause
// copy.h — one box of 256 words per CTA through shared memory: a kernel whose CTAs do not interact.
#pragma once

#include "device/hopper/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"

namespace fa3::sim {

struct CopySmem {
  alignas(128) u32 data[256];
  Barrier full;
  FA3_NAMED(data, full)
};
struct CopyArgs {
  TensorMap map;  // rows of 32 words, boxes of 8 rows
  u32* out;
  bool overlap;  // wrong: every CTA also writes the first word of the next one's
};

inline void copy(const CopyArgs args) {
  auto& smem = ptx::smem_as<CopySmem>();
  const u32 thread = ptx::thread_index(), cta = ptx::block_index_x();
  if (thread == 0) {
    smem.full.init(1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (thread == 0) {
    smem.full.arrive_expect_tx(sizeof(smem.data));
    ptx::tma_load_2d(ptx::smem_address(smem.data), args.map, smem.full.address(), 0,
                     static_cast<i32>(8 * cta));
  }
  smem.full.wait(0);
  for (u32 i = thread; i < 256; i += ptx::block_threads())
    ptx::st_global(args.out + 256 * cta + i, ptx::ld_shared(&smem.data[i]));
  if (args.overlap && thread == 0 && cta + 1 < ptx::grid_dim_x())
    ptx::st_global(args.out + 256 * (cta + 1), 0u);
}

}  // namespace fa3::sim
