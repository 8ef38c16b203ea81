// SPDX-License-Identifier: BSD-3-Clause
// mma.cuh — conformance of mma.sync: one warp, operands as the host lays them out for each lane.
#pragma once

#include "device/ptx/memory.h"
#include "device/ptx/mma.h"
#include "device/ptx/thread.h"

namespace fa3::selftest {

struct MmaArgs {
  const u32* a;  // [4][32]
  const u32* b;  // [2][32]
  float* d;      // [4][32]: read and written
};

template <MmaType kType>
FA3_KERNEL(32)
void mma(FA3_GRID_CONSTANT const MmaArgs args) {
  const u32 lane = ptx::lane_index();
  ptx::AFrag a;
  ptx::Acc<8> d;
  for (u32 i = 0; i < 4; ++i) {
    a[static_cast<int>(i)] = ptx::ld_global(args.a + 32 * i + lane);
    d[static_cast<int>(i)] = ptx::ld_global(args.d + 32 * i + lane);
  }
  const u32 low = ptx::ld_global(args.b + lane), high = ptx::ld_global(args.b + 32 + lane);
  ptx::mma_16x8x16<kType>(d, 0, a, low, high);
  for (u32 i = 0; i < 4; ++i) ptx::st_global(args.d + 32 * i + lane, d[static_cast<int>(i)]);
}

}  // namespace fa3::selftest
