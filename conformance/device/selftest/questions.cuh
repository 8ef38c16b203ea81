// SPDX-License-Identifier: BSD-3-Clause
// questions.cuh — programs that ask a GPU what PTX leaves open, for a GPU only: swizzled boxes that
// begin inside a pattern, the bytes that a box beyond the tensor reports, the pitch of a box that
// is narrower than its swizzle, and reads that no proxy fence orders before a copy.
#pragma once

#include "device/ptx/grid.h"
#include "device/selftest/tma.cuh"
#include "device/selftest/wgmma.cuh"

namespace fa3::selftest {

// ---- A box that begins inside the swizzle's pattern ---------------------------------------------

inline constexpr u32 kShiftedBytes = 64 * 128;  // 64 rows of 64 BF16

struct ShiftedArgs {
  TensorMap a, b;  // boxes of 64 × 64 BF16, 128-byte swizzle
  u32 offset;      // of both boxes from a multiple of 1024: a multiple of 128, below 1024
  u8* image;       // [kShiftedBytes]: A from its first byte on
  u32* d;          // [register][thread]: A·Bᵀ, base offset 0 in the descriptors
};

struct ShiftedSmem {
  alignas(1024) u8 a[kShiftedBytes + 1024];
  alignas(1024) u8 b[kShiftedBytes + 1024];
  alignas(8) u64 full;
  FA3_NAMED(a, b, full)
};

FA3_KERNEL(128)
void shifted_box(FA3_GRID_CONSTANT const ShiftedArgs args) {
  auto& smem = ptx::smem_as<ShiftedSmem>();
  const u32 thread = ptx::thread_index();
  const u32 full = ptx::smem_address(&smem.full);
  const u32 a = ptx::smem_address(smem.a) + args.offset;
  const u32 b = ptx::smem_address(smem.b) + args.offset;
  if (thread == 0) {
    ptx::mbar_init(full, 1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (thread == 0) {
    ptx::mbar_arrive_expect_tx(full, 2 * kShiftedBytes);
    ptx::tma_load_2d(a, args.a, full, 0, 0);
    ptx::tma_load_2d(b, args.b, full, 0, 0);
  }
  ptx::mbar_wait(full, 0);
  dump(args.image, smem.a + args.offset, kShiftedBytes);

  constexpr u64 kFields = u64{1} << 62 | u64{1024 >> 4} << 32;  // 128-byte swizzle, SBO 1024
  ptx::Acc<64> d;
  d.zero();
  ptx::fence_regs(d);
  ptx::wgmma_fence();
  FA3_UNROLL
  for (u32 step = 0; step < 4; ++step) {
    ptx::wgmma_ss<MmaType::kBf16, 64>(d, kFields | ((a + 32 * step) & 0x3FFFF) >> 4,
                                      kFields | ((b + 32 * step) & 0x3FFFF) >> 4, step > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::fence_regs(d);
  FA3_UNROLL
  for (int i = 0; i < 32; ++i) ptx::st_global(args.d + 128 * i + thread, ptx::bits_as<u32>(d[i]));
}

// ---- What a box reports and where it goes -------------------------------------------------------

inline constexpr u32 kBoxImageBytes = 8 << 10;
inline constexpr u32 kUntouched = 0xA5A5A5A5;  // a word that no copy has written
inline constexpr u64 kPatience = 10'000'000;   // clocks, some milliseconds

struct BoxArgs {
  TensorMap map;
  i32 coordinate[2];
  u32 expected_bytes;
  u8* image;  // [kBoxImageBytes]
  u32* done;  // whether the barrier's phase ended
};

struct BoxSmem {
  alignas(1024) u8 image[kBoxImageBytes];
  alignas(8) u64 full;
  FA3_NAMED(image, full)
};

FA3_KERNEL(kTmaThreads)
void box_bytes(FA3_GRID_CONSTANT const BoxArgs args) {
  auto& smem = ptx::smem_as<BoxSmem>();
  const u32 full = ptx::smem_address(&smem.full);
  for (u32 i = ptx::thread_index(); i < kBoxImageBytes / 4; i += kTmaThreads) {
    ptx::st_shared(reinterpret_cast<u32*>(smem.image) + i, kUntouched);
  }
  if (ptx::thread_index() == 0) {
    ptx::mbar_init(full, 1);
    ptx::fence_mbar_init();
  }
  ptx::fence_proxy_async_shared();
  ptx::cta_sync();
  if (ptx::thread_index() == 0) {
    ptx::mbar_arrive_expect_tx(full, args.expected_bytes);
    ptx::tma_load_2d(ptx::smem_address(smem.image), args.map, full, args.coordinate[0],
                     args.coordinate[1]);
    const u64 begin = ptx::clock();
    bool done = false;
    while (!done && ptx::clock() - begin < kPatience) done = ptx::mbar_test_wait(full, 0);
    while (ptx::clock() - begin < kPatience) {  // wait for unexpected bytes, too
    }
    ptx::st_global(args.done, done ? 1u : 0u);
  }
  ptx::cta_sync();
  dump(args.image, smem.image, kBoxImageBytes);
}

// ---- Reads that a copy overtakes ----------------------------------------------------------------

inline constexpr u32 kOvertakeReaders = 128;
inline constexpr u32 kOvertakeSlotBytes = 16 * kOvertakeReaders;
inline constexpr u32 kOvertakeItems = 16;  // of the source, used in turn

struct OvertakeArgs {
  const u8* source;  // [kOvertakeItems][kOvertakeSlotBytes]: every word of an item is its index
  u32 rounds;
  u32* wrong;  // [CTA][reader]: words that were not of the item that was waited for
};

struct OvertakeSmem {
  alignas(128) u8 slot[kOvertakeSlotBytes];
  alignas(8) u64 full;
  alignas(8) u64 empty;
  FA3_NAMED(slot, full, empty)
};

// Warp 4 copies item after item into one slot; the others read it. kFenced: as the rules want it,
// each reader fences its reads before it frees the slot.
template <bool kFenced>
FA3_KERNEL(kOvertakeReaders + 32)
void overtake(FA3_GRID_CONSTANT const OvertakeArgs args) {
  auto& smem = ptx::smem_as<OvertakeSmem>();
  const u32 thread = ptx::thread_index();
  const u32 full = ptx::smem_address(&smem.full);
  const u32 empty = ptx::smem_address(&smem.empty);
  if (thread == 0) {
    ptx::mbar_init(full, 1);
    ptx::mbar_init(empty, kOvertakeReaders);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (thread >= kOvertakeReaders) {
    if (thread != kOvertakeReaders) return;
    for (u32 round = 0; round < args.rounds; ++round) {
      ptx::mbar_wait(empty, round % 2 ^ 1);
      ptx::mbar_arrive_expect_tx(full, kOvertakeSlotBytes);
      ptx::bulk_load(ptx::smem_address(smem.slot),
                     args.source + round % kOvertakeItems * kOvertakeSlotBytes, kOvertakeSlotBytes,
                     full);
    }
    return;
  }
  u32 wrong = 0;
  const auto* const mine = reinterpret_cast<const ptx::Vec<u32, 4>*>(smem.slot) + thread;
  for (u32 round = 0; round < args.rounds; ++round) {
    ptx::mbar_wait(full, round % 2);
    const ptx::Vec<u32, 4> got = ptx::ld_shared(mine);
    if constexpr (kFenced) ptx::fence_proxy_async_shared();
    ptx::mbar_arrive(empty);
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) wrong += got[i] != round % kOvertakeItems ? 1 : 0;
  }
  ptx::st_global(args.wrong + kOvertakeReaders * ptx::block_index_x() + thread, wrong);
}

}  // namespace fa3::selftest
