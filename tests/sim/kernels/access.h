// SPDX-License-Identifier: BSD-3-Clause
// access.h — ordinary accesses: 64 threads reverse an array through shared memory, add up a sum by
// shuffles and announce it on an mbarrier; and the same with one line wrong.
#pragma once

#include "device/hopper/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"

namespace fa3::faulty {

enum class AccessFault {
  kNone,
  kReadBeyondInput,
  kWriteBeyondOutput,
  kWriteInput,
  kWriteGap,
  kWriteBarrier,
  kMisalignedShared,
  kMisalignedGlobal,
  kUnwrittenRead,
  kMissingSync,
  kDivergentSync,
  kInitTwice,
  kInitMisaligned,
  kInitZero,
  kWaitParity2,
  kShuffleOfHalf,
  kShuffleAbsentLane,
  kWaitForNobody,
  kTrap,
};

struct AccessArgs {
  const float* in;  // [64]
  float* out;       // [64] reversed, then their sum
  u32 rounds;
};

struct AccessSmem {
  alignas(16) float values[64];
  float gap[4];  // not named: not to be touched
  alignas(16) float unused[8];
  Barrier sum_full, sum_empty;
  FA3_NAMED(values, unused, sum_full, sum_empty)
};

// Warp 0 announces a phase per round; warp 1 waits for it, and lets the next begin.
template <AccessFault kFault>
FA3_DEV void access_rounds(AccessSmem& smem, u32 rounds) {
  using F = AccessFault;
  const u32 warp = ptx::warp_index(), lane = ptx::lane_index();
  for (u32 round = 0; round < rounds; ++round) {
    if (warp == 0) {
      if (lane == 0) smem.sum_empty.wait(round % 2 ^ 1);
      ptx::warp_sync();
      smem.sum_full.arrive_if(lane == 0);
    } else {
      smem.sum_full.wait(kFault == F::kWaitParity2 ? 2 : round % 2);
      ptx::warp_sync();
      smem.sum_empty.arrive_if(lane == 0);
    }
  }
}

template <AccessFault kFault>
FA3_KERNEL(64, 1)
void reverse(FA3_GRID_CONSTANT const AccessArgs args) {
  using F = AccessFault;
  auto& smem = ptx::smem_as<AccessSmem>();
  const u32 thread = ptx::thread_index(), lane = ptx::lane_index();
  if (thread == 0) {
    smem.sum_full.init(kFault == F::kInitZero ? 0 : kFault == F::kWaitForNobody ? 2 : 1);
    if constexpr (kFault == F::kInitTwice) smem.sum_full.init(1);
    if constexpr (kFault == F::kInitMisaligned) ptx::mbar_init(smem.sum_full.address() + 4, 1);
    smem.sum_empty.init(1);
    ptx::fence_mbar_init();
  }
  const u32 beyond = kFault == F::kReadBeyondInput ? 1 : 0;
  const float value = ptx::ld_global(args.in + thread + beyond);
  ptx::st_shared(&smem.values[thread], value);
  if constexpr (kFault == F::kWriteGap) ptx::st_shared(&smem.gap[thread % 4], value);
  if constexpr (kFault == F::kDivergentSync) {
    if (lane < 16) ptx::cta_sync();
  } else if constexpr (kFault != F::kMissingSync) {
    ptx::cta_sync();
  }
  if constexpr (kFault == F::kWriteBarrier) {
    if (thread == 0) ptx::st_shared(&smem.sum_full.bits, u64{0});
  }
  if constexpr (kFault == F::kMisalignedShared) {
    ptx::st_shared(reinterpret_cast<ptx::Vec<float, 2>*>(&smem.unused[1]), {value, value});
  }
  if constexpr (kFault == F::kMisalignedGlobal) {
    ptx::st_global(reinterpret_cast<ptx::Vec<float, 2>*>(args.out + 2 * (lane / 2) + 1),
                   {value, value});
  }
  const float* from = kFault == F::kUnwrittenRead ? &smem.unused[0] : &smem.values[63 - thread];
  const float reversed = ptx::ld_shared(from);
  ptx::st_global(args.out + thread + (kFault == F::kWriteBeyondOutput ? 2 : 0), reversed);
  if constexpr (kFault == F::kWriteInput) ptx::st_global(const_cast<float*>(args.in), value);
  if constexpr (kFault == F::kTrap) {
    if (reversed > 10) ptx::trap("a value above 10");
  }
  access_rounds<kFault>(smem, args.rounds);
  ptx::cta_sync();
  if (thread < 32) {
    float sum = ptx::ld_shared(&smem.values[lane]) + ptx::ld_shared(&smem.values[lane + 32]);
    for (u32 step = 16; step > 0; step /= 2) {
      const u32 mask = kFault == F::kShuffleAbsentLane ? 0xFFFFu << (lane & 16) : ~0u;
      if (kFault != F::kShuffleOfHalf || lane < 16) sum += ptx::shfl_xor(sum, step, 32, mask);
    }
    if (lane == 0) ptx::st_global(args.out + 64, sum);
  }
}

// A producer that counts one of two readers: the other may find the barrier two phases on.
template <bool kCountsBoth>
FA3_KERNEL(96, 1)
void two_readers(FA3_GRID_CONSTANT const AccessArgs args) {
  auto& smem = ptx::smem_as<AccessSmem>();
  const u32 warp = ptx::warp_index(), lane = ptx::lane_index();
  if (ptx::thread_index() == 0) {
    smem.sum_full.init(1);
    smem.sum_empty.init(kCountsBoth ? 2 : 1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  for (u32 round = 0; round < args.rounds; ++round) {
    if (warp == 0) {
      if (lane == 0) smem.sum_empty.wait(round % 2 ^ 1);
      ptx::warp_sync();
      smem.sum_full.arrive_if(lane == 0);
    } else {
      smem.sum_full.wait(round % 2);
      ptx::warp_sync();
      smem.sum_empty.arrive_if(lane == 0 && (kCountsBoth || warp == 1));
    }
  }
}

}  // namespace fa3::faulty
