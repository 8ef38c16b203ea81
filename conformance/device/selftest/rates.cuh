// SPDX-License-Identifier: BSD-3-Clause
// rates.cuh — programs that measure, for a GPU only: clocks of instructions and of wgmma, the time
// limit of try_wait, the lane that elect chooses.
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/convert.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/mbarrier.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/selftest/wgmma.cuh"

namespace fa3::selftest {

// When each warp began and ended: [warp][2].
struct RateArgs {
  u64* clocks;
  u32* sink;       // [thread]: results, so that they are computed
  float other[2];  // operands that the compiler does not know
  u32 rounds;      // of kRateUnrolled instructions per chain
};

// ---- Scalar instructions ------------------------------------------------------------------------

enum class RateOp : u8 { kFma, kMax, kEx2, kPackBf16, kPackE4m3, kShuffle };
inline constexpr u32 kRateUnrolled = 16;

// One instruction; kPackE4m3 two, for 4 results.
template <RateOp kOp>
FA3_DEV float rate_step(float x, float other) {
  if constexpr (kOp == RateOp::kFma) return ptx::fma(x, other, x);
  if constexpr (kOp == RateOp::kMax) return ptx::max(x, other);
  if constexpr (kOp == RateOp::kEx2) return ptx::ex2(x);
  if constexpr (kOp == RateOp::kPackBf16) return ptx::bits_as<float>(ptx::pack_bf16(x, other));
  if constexpr (kOp == RateOp::kPackE4m3) {
    return ptx::bits_as<float>(ptx::pack_e4m3(x, other, other, x));
  }
  if constexpr (kOp == RateOp::kShuffle) return ptx::shfl_xor(x, 1);
}

// kChains chains of dependent instructions.
template <RateOp kOp, int kChains>
FA3_KERNEL(1024)
void rate(FA3_GRID_CONSTANT const RateArgs args) {
  const u32 thread = ptx::thread_index();
  float x[kChains];
  FA3_UNROLL
  for (int i = 0; i < kChains; ++i) x[i] = args.other[0] + static_cast<float>(thread + 100u * i);
  const float other[2] = {args.other[0], args.other[1]};
  ptx::cta_sync();
  const u64 begin = ptx::clock();
  FA3_NO_UNROLL
  for (u32 round = 0; round < args.rounds; ++round) {
    FA3_UNROLL
    for (u32 j = 0; j < kRateUnrolled; ++j) {
      FA3_UNROLL
      for (int i = 0; i < kChains; ++i) x[i] = rate_step<kOp>(x[i], other[j % 2]);
    }
  }
  u32 sum = 0;
  FA3_UNROLL
  for (int i = 0; i < kChains; ++i) sum ^= ptx::bits_as<u32>(x[i]);
  ptx::st_global(args.sink + thread, sum);
  const u64 end = ptx::clock();
  ptx::st_global(args.clocks + 2 * (thread / 32), begin);
  ptx::st_global(args.clocks + 2 * (thread / 32) + 1, end);
}

// ---- wgmma --------------------------------------------------------------------------------------

inline constexpr int kRateSteps = 4;  // wgmmas of a group: 128 bytes along K

struct WgmmaRateSmem {
  alignas(1024) u8 a[2][64 * 128];
  alignas(1024) u8 b[256 * 128];
  FA3_NAMED(a, b)
};

// kGroups warpgroups, each with its own A and accumulator; operands K-major with 128-byte rows.
template <WgmmaCase kCase, int kGroups>
FA3_KERNEL(128 * kGroups)
void wgmma_rate(FA3_GRID_CONSTANT const RateArgs args) {
  static_assert(!kCase.a_mn_major && !kCase.b_mn_major, "wgmma_rate: K-major operands");
  auto& smem = ptx::smem_as<WgmmaRateSmem>();
  const u32 thread = ptx::thread_index();
  auto* const words = reinterpret_cast<u32*>(&smem);
  for (u32 i = thread; i < sizeof(WgmmaRateSmem) / 4; i += ptx::block_threads()) {
    ptx::st_shared(words + i, 0u);
  }
  ptx::fence_proxy_async_shared();
  ptx::cta_sync();

  constexpr u64 kFields = u64{1} << 62 | u64{1024 >> 4} << 32;  // 128-byte swizzle, SBO 1024
  const u32 group = ptx::warpgroup_index();
  const u64 a_desc = kFields | (ptx::smem_address(smem.a[group]) & 0x3FFFF) >> 4;
  const u64 b_desc = kFields | (ptx::smem_address(smem.b) & 0x3FFFF) >> 4;
  ptx::AccFor<kCase.a, kCase.n> d;
  d.zero();
  [[maybe_unused]] ptx::AFrag a;
  FA3_UNROLL
  for (int i = 0; i < 4; ++i) a[i] = ptx::bits_as<u32>(args.other[0]) & 0x01010101;
  ptx::cta_sync();

  const u64 begin = ptx::clock();
  ptx::fence_regs(d);
  FA3_NO_UNROLL
  for (u32 round = 0; round < args.rounds; ++round) {
    ptx::wgmma_fence();
    FA3_UNROLL
    for (u64 step = 0; step < kRateSteps; ++step) {
      if constexpr (kCase.a_in_registers) {
        ptx::wgmma_rs<kCase.a, kCase.n>(d, a, b_desc + 2 * step, true);
      } else {
        ptx::wgmma_ss<kCase.a, kCase.n>(d, a_desc + 2 * step, b_desc + 2 * step, true);
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
  }
  ptx::wgmma_wait<0>();
  ptx::fence_regs(d);
  const u64 end = ptx::clock();

  FA3_UNROLL
  for (int i = 0; i < kCase.n / 2; ++i) ptx::st_global(args.sink + thread, ptx::bits_as<u32>(d[i]));
  ptx::st_global(args.clocks + 2 * (thread / 32), begin);
  ptx::st_global(args.clocks + 2 * (thread / 32) + 1, end);
}

// ---- Waiting and electing -----------------------------------------------------------------------

struct WaitLimitSmem {
  alignas(8) u64 bar;
  FA3_NAMED(bar)
};

// One try_wait per round for a phase that never ends; clocks: [round][2]. The second clock waits
// for the branch on the answer; without it both are read before there is one.
FA3_KERNEL(32)
void wait_limit(FA3_GRID_CONSTANT const RateArgs args) {
  auto& smem = ptx::smem_as<WaitLimitSmem>();
  if (ptx::thread_index() != 0) return;
  const u32 bar = ptx::smem_address(&smem.bar);
  ptx::mbar_init(bar, 1);
  ptx::fence_mbar_init();
  for (u32 round = 0; round < args.rounds; ++round) {
    const u64 begin = ptx::clock();
    if (ptx::mbar_try_wait(bar, 0)) return;
    const u64 end = ptx::clock();
    ptx::st_global(args.clocks + 2 * round, begin);
    ptx::st_global(args.clocks + 2 * round + 1, end);
  }
}

struct ElectArgs {
  const u32* mask;  // [CTA]
  u32* elected;     // [CTA]: bit mask of the lanes that were chosen
};

FA3_KERNEL(32)
void elected_lanes(FA3_GRID_CONSTANT const ElectArgs args) {
  const u32 mask = ptx::ld_global(args.mask + ptx::block_index_x());
  if ((mask >> ptx::lane_index() & 1) == 0) return;
  const u32 elected = ptx::ballot(ptx::elect_one(mask), mask);
  ptx::st_global(args.elected + ptx::block_index_x(), elected);
}

}  // namespace fa3::selftest
