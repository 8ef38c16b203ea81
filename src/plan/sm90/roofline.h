// SPDX-License-Identifier: BSD-3-Clause
// roofline.h — what a KV tile of the Hopper forward costs each unit of an SM, which unit limits,
// and how long a problem takes by that. A model: docs/tuning/roofline.md compares it with an H200.
#pragma once

#include "core/device.h"
#include "core/problem.h"
#include "plan/sm90/fwd/plan.h"

namespace fa3::sm90 {

// What an H200 does, per clock of one SM unless said; measured, roofline.cpp says where.
inline constexpr double kMmaFlops = 4096;  // 16-bit, dense
inline constexpr double kExponentials = 16;
inline constexpr double kWarpInstructions = 4;
inline constexpr double kSharedBytes = 128;
inline constexpr double kClockGhz = 1.785;
inline constexpr double kMemoryBytesPerS = 4.246e12;  // of the GPU

DeviceInfo h200();  // what a plan for it depends on

// Clocks of an SM for one KV tile, all consumers of the CTA together.
struct TileCost {
  double mma = 0;
  double exponentials = 0;
  double issue = 0;
  double shared_memory = 0;

  double most() const;          // all units at work at the same time
  const char* limiter() const;  // the unit that takes most()
};

// masked: by a loop that puts −inf where a row does not see a key.
TileCost tile_cost(const FwdConfig& config, bool masked);

// Expected clocks: the GEMMs, then the instructions of the softmax, without overlap.
double expected_clocks(const FwdConfig& config, const TileCost& cost);

// Instructions of one warp's step, in the machine code of the loop: those that run in every step,
// and those in rarely taken branches (a rescale, maxima of negative scores).
double step_instructions(const FwdConfig& config, bool masked);
double rare_instructions(const FwdConfig& config);

// A whole problem whose lengths are known (Work::exact), from the start of the kernel to its end;
// the kernel is persistent.
struct Estimate {
  double least_s = 0;     // each tile at TileCost::most()
  double expected_s = 0;  // each tile at expected_clocks(), and the overhead per Q tile
  double memory_s = 0;    // of both: every tensor read or written once
  double busy = 1;        // share of the grid's time until the last CTA ends, by expected_s
};

Estimate estimate(const FwdPlan& plan, const Problem& problem, double clock_ghz = kClockGhz);

}  // namespace fa3::sm90
