// SPDX-License-Identifier: BSD-3-Clause
// timing.h — the costs of an SM's units under Options::timed, in clocks, and until when each unit
// is busy.
//
// For pictures of a schedule: what waits for what, and what overlaps with what. It leaves out far
// more than it models (all arithmetic but exponentials, bank conflicts, issue slots, the L2 cache),
// so its totals predict no speed. The rates of wgmma and exponentials were measured on an H200
// (bench/results/nvidia-h200/2026-11-20-selftest-measure.json); those of copies and of single
// instructions are round numbers.
#pragma once

#include <algorithm>

#include "device/ptx/mma_types.h"
#include "device/types.h"

namespace fa3::sim {

constexpr u64 kPrimitiveClocks = 8;  // of a thread, per primitive
constexpr u64 kCopyLatency = 600;    // from shared to global memory and back
constexpr u64 kCopyBytesPerClock = 64;
constexpr u64 kExpClocks = 8;   // of a warp on its quarter of the SM: 16 a clock and SM
constexpr u32 kExpsAtOnce = 8;  // then another warp may use the unit

constexpr u64 wgmma_clocks(const WgmmaInstruction& i) {
  return std::max<u64>(static_cast<u64>(i.n) / 2, 16);
}

// A unit that serves requests one at a time.
struct Unit {
  u64 until = 0;

  // When it starts to serve a request of `clocks` made now.
  u64 take(u64 now, u64 clocks) {
    const u64 begin = std::max(now, until);
    until = begin + clocks;
    return begin;
  }
};

// The units of a CTA, as if it had an SM to itself.
struct Sm {
  Unit tensor_core, copies, exponentials[4];
};

}  // namespace fa3::sim
