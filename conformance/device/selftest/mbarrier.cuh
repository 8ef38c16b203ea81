// SPDX-License-Identifier: BSD-3-Clause
// mbarrier.cuh — conformance of mbarriers: what test_wait says after each step of a script, and a
// ring that hands numbers from one warp to another.
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/mbarrier.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"

namespace fa3::selftest {

// One step of a script, run by one thread. After each, the results of test_wait for both parities
// are written.
enum class MbarStep : u32 {
  kInit,            // count = operand
  kArrive,          // operand arrivals
  kArriveIf,        // one arrival when operand is not 0
  kArriveDrop,      // later phases expect one arrival less
  kExpectTx,        // operand bytes
  kArriveExpectTx,  // operand bytes, then one arrival
  kLoadAndWait,     // a bulk copy of operand bytes, which completes the phase
  kInval,           // ends the barrier's life; nothing is tested after it
};
inline constexpr u32 kMbarMaxLoad = 4096;

struct MbarScriptArgs {
  const u32* step;  // [2 · steps]: step, operand
  u32 steps;
  const u8* source;  // kMbarMaxLoad bytes
  u32* result;       // [steps]: bit 0 test_wait(0), bit 1 test_wait(1)
};

struct MbarScriptSmem {
  alignas(16) u8 data[kMbarMaxLoad];
  alignas(8) u64 bar;
  FA3_NAMED(data, bar)
};

FA3_KERNEL(32)
void mbar_script(FA3_GRID_CONSTANT const MbarScriptArgs args) {
  auto& smem = ptx::smem_as<MbarScriptSmem>();
  if (ptx::thread_index() != 0) return;
  const u32 bar = ptx::smem_address(&smem.bar);
  for (u32 i = 0; i < args.steps; ++i) {
    const u32 operand = ptx::ld_global(args.step + 2 * i + 1);
    switch (static_cast<MbarStep>(ptx::ld_global(args.step + 2 * i))) {
      case MbarStep::kInit:
        ptx::mbar_init(bar, operand);
        ptx::fence_mbar_init();
        break;
      case MbarStep::kArrive:
        ptx::mbar_arrive(bar, operand);
        break;
      case MbarStep::kArriveIf:
        ptx::mbar_arrive_if(bar, operand != 0);
        break;
      case MbarStep::kArriveDrop:
        ptx::mbar_arrive_drop(bar);
        break;
      case MbarStep::kExpectTx:
        ptx::mbar_expect_tx(bar, operand);
        break;
      case MbarStep::kArriveExpectTx:
        ptx::mbar_arrive_expect_tx(bar, operand);
        break;
      case MbarStep::kLoadAndWait: {
        const u32 parity = ptx::mbar_test_wait(bar, 0) ? 1 : 0;  // of the current phase
        ptx::bulk_load(ptx::smem_address(smem.data), args.source, operand, bar);
        ptx::mbar_wait(bar, parity);
        break;
      }
      case MbarStep::kInval:
        ptx::mbar_inval(bar);
        ptx::st_global(args.result + i, 0u);
        continue;
    }
    const u32 even = ptx::mbar_test_wait(bar, 0) ? 1 : 0;
    const u32 odd = ptx::mbar_test_wait(bar, 1) ? 2 : 0;
    ptx::st_global(args.result + i, even | odd);
  }
}

inline constexpr u32 kRingStages = 3;
inline constexpr u32 kRingItems = 20;

struct MbarRingArgs {
  const u32* in;  // [kRingItems][32]
  u32* out;       // prefix sums of the items
};

struct MbarRingSmem {
  u32 slot[kRingStages][32];
  alignas(8) u64 full[kRingStages];
  alignas(8) u64 empty[kRingStages];
  FA3_NAMED(slot, full, empty)
};

// Warp 0 hands each item to warp 1. full: 32 arrivals, those of the producer's lanes; empty: 1, of
// the consumer's lane 0.
FA3_KERNEL(64)
void mbar_ring(FA3_GRID_CONSTANT const MbarRingArgs args) {
  auto& smem = ptx::smem_as<MbarRingSmem>();
  const u32 lane = ptx::lane_index();
  if (ptx::thread_index() == 0) {
    for (u32 s = 0; s < kRingStages; ++s) {
      ptx::mbar_init(ptx::smem_address(&smem.full[s]), 32);
      ptx::mbar_init(ptx::smem_address(&smem.empty[s]), 1);
    }
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  const bool produces = ptx::warp_index() == 0;
  u32 sum = 0;
  for (u32 item = 0; item < kRingItems; ++item) {
    const u32 stage = item % kRingStages;
    const u32 parity = item / kRingStages % 2;
    const u32 full = ptx::smem_address(&smem.full[stage]);
    const u32 empty = ptx::smem_address(&smem.empty[stage]);
    if (produces) {
      ptx::mbar_wait(empty, parity ^ 1);
      ptx::st_shared(&smem.slot[stage][lane], ptx::ld_global(args.in + 32 * item + lane));
      ptx::mbar_arrive(full);
    } else {
      ptx::mbar_wait(full, parity);
      sum += ptx::ld_shared(&smem.slot[stage][lane]);
      ptx::st_global(args.out + 32 * item + lane, sum);
      ptx::warp_sync();
      ptx::mbar_arrive_if(empty, lane == 0);
    }
  }
}

}  // namespace fa3::selftest
