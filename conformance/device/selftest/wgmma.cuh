// SPDX-License-Identifier: BSD-3-Clause
// wgmma.cuh — conformance of wgmma: one MMA 64 × n × (32 bytes per step), whose operand images,
// descriptors and register fragments the host lays out.
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/mbarrier.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/wgmma.h"

namespace fa3::selftest {

struct WgmmaCase {
  MmaType a, b;
  int n;
  bool a_in_registers, a_mn_major, b_mn_major;
};

inline constexpr int kWgmmaSteps = 4;  // instructions of 32 bytes along K, at most
inline constexpr int kWgmmaABytes = 16 << 10;
inline constexpr int kWgmmaBBytes = 64 << 10;

struct WgmmaArgs {
  const u8* a;         // image in shared memory; or fragments, [step][register][thread]
  const u8* b;         // image in shared memory
  const u32* c;        // accumulators before, [register][thread]
  u32* d;              // and after
  u64 a_desc, b_desc;  // with start address 0
  u32 a_offset[kWgmmaSteps], b_offset[kWgmmaSteps];  // bytes from the image's begin
  u32 a_bytes, b_bytes;                              // of the images, multiples of 16
  u32 accumulate;                                    // whether the first step adds to c
};

struct WgmmaSmem {
  alignas(1024) u8 a[kWgmmaABytes];
  alignas(1024) u8 b[kWgmmaBBytes];
  alignas(8) u64 full;
  FA3_NAMED(a, b, full)
};

template <WgmmaCase kCase, int kSteps = kWgmmaSteps>
FA3_KERNEL(128)
void wgmma(FA3_GRID_CONSTANT const WgmmaArgs args) {
  static_assert(kSteps >= 1 && kSteps <= kWgmmaSteps, "wgmma: kSteps from 1 to kWgmmaSteps");
  auto& smem = ptx::smem_as<WgmmaSmem>();
  const u32 thread = ptx::thread_index();
  const u32 a_image = ptx::smem_address(smem.a);
  const u32 b_image = ptx::smem_address(smem.b);
  const u32 full = ptx::smem_address(&smem.full);

  if (thread == 0) {
    ptx::mbar_init(full, 1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (thread == 0) {
    if constexpr (kCase.a_in_registers) {
      ptx::mbar_arrive_expect_tx(full, args.b_bytes);
    } else {
      ptx::mbar_arrive_expect_tx(full, args.a_bytes + args.b_bytes);
      ptx::bulk_load(a_image, args.a, args.a_bytes, full);
    }
    ptx::bulk_load(b_image, args.b, args.b_bytes, full);
  }

  ptx::AccFor<kCase.a, kCase.n> d;
  FA3_UNROLL
  for (int i = 0; i < kCase.n / 2; ++i) {
    const u32 bits = ptx::ld_global(args.c + 128 * i + thread);
    d[i] = ptx::bits_as<typename ptx::AccElement<kCase.a>::Type>(bits);
  }
  [[maybe_unused]] ptx::AFrag a[kSteps];
  if constexpr (kCase.a_in_registers) {
    const auto* fragments = reinterpret_cast<const u32*>(args.a);
    FA3_UNROLL
    for (int i = 0; i < 4 * kSteps; ++i) {
      a[i / 4][i % 4] = ptx::ld_global(fragments + 128 * i + thread);
    }
  }

  ptx::mbar_wait(full, 0);
  ptx::fence_regs(d);
  ptx::wgmma_fence();
  FA3_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    const bool accumulate = step > 0 || args.accumulate != 0;
    const u64 b_desc = args.b_desc | ((b_image + args.b_offset[step]) & 0x3FFFF) >> 4;
    if constexpr (kCase.a_in_registers) {
      ptx::wgmma_rs<kCase.a, kCase.n, kCase.b_mn_major, kCase.b>(d, a[step], b_desc, accumulate);
    } else {
      const u64 a_desc = args.a_desc | ((a_image + args.a_offset[step]) & 0x3FFFF) >> 4;
      ptx::wgmma_ss<kCase.a, kCase.n, kCase.a_mn_major, kCase.b_mn_major, kCase.b>(
          d, a_desc, b_desc, accumulate);
    }
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::fence_regs(d);

  FA3_UNROLL
  for (int i = 0; i < kCase.n / 2; ++i) {
    ptx::st_global(args.d + 128 * i + thread, ptx::bits_as<u32>(d[i]));
  }
}

}  // namespace fa3::selftest
