// SPDX-License-Identifier: BSD-3-Clause
// timing.h — what Options::timed takes an SM's units to need, in clocks, and until when they are
// taken.
//
// For pictures of a schedule: who waits for whom, and what runs beside what. It leaves out far more
// than it has in it (all arithmetic but exponentials, bank conflicts, issue slots, the L2 cache),
// so its sums predict no speed. Rates are those that an H200 was measured to have
// (bench/results/nvidia-h200/2026-11-20-selftest-measure.json); those of copies and of single
// instructions are round numbers.
#pragma once

#include <algorithm>

#include "device/ptx/mma_types.h"
#include "device/types.h"

namespace fa3::sim {

constexpr u64 kPrimitiveClocks = 8;  // of a thread, for each primitive that it enters
constexpr u64 kCopyLatency = 600;    // from shared to global memory and back
constexpr u64 kCopyBytesPerClock = 64;
constexpr u64 kExpClocks = 8;   // of a warp on its quarter of the SM: 16 a clock and SM
constexpr u32 kExpsAtOnce = 8;  // then another warp may have the unit

constexpr u64 wgmma_clocks(const WgmmaInstruction& i) {
  return std::max<u64>(static_cast<u64>(i.n) / 2, 16);
}

// Something that serves one after another.
struct Unit {
  u64 until = 0;

  // From when it serves a request of `clocks` that is made now.
  u64 take(u64 now, u64 clocks) {
    const u64 begin = std::max(now, until);
    until = begin + clocks;
    return begin;
  }
};

// Of each CTA, as if it had an SM to itself.
struct Sm {
  Unit tensor_core, copies, exponentials[4];
};

}  // namespace fa3::sim
