// SPDX-License-Identifier: BSD-3-Clause
// roofline.h — what a step of the Hopper backward, one Q tile of a KV tile, costs each unit,
// which unit limits, and the least time of a problem by that. A model with the rates of
// roofline.h; docs/tuning/roofline.md compares it with an H200.
#pragma once

#include <array>

#include "core/problem.h"
#include "plan/sm90/bwd/plan.h"

namespace fa3::sm90 {

// Bytes of additions into FP32 or integer sums that the L2 cache takes, per clock of one SM, all
// of them adding: bench/results/nvidia-h200/2026-11-23-64265c0931d8-dirty-reduce-rates.jsonl.
inline constexpr double kAddedBytes = 15.6;

// Clocks of an SM, all consumers of the CTA together.
struct BwdStepCost {
  double mma = 0;
  double exponentials = 0;
  double shared_memory = 0;
  double additions = 0;  // into dQ's sums

  double most() const;          // all units at work at the same time
  const char* limiter() const;  // the unit that takes most()
};
// sums_dq: whether anybody wants dQ; it is made all the same.
BwdStepCost bwd_step_cost(const BwdConfig& config, bool sums_dq = true);

// Seconds of each kernel, none of which overlaps another; 0 for one that does not run. The main
// kernel at BwdStepCost::most() for each step, or by its tensors, each read or written once; the
// others by the bytes that they read and write.
struct BwdEstimate {
  double bound_s = 0, delta_s = 0, main_s = 0, dq_s = 0;
  bool main_by_memory = false;
  double steps = 0;
  double busy = 1;  // share of the main kernel's time until its last CTA ends

  double least_s() const { return bound_s + delta_s + main_s + dq_s; }
};

// plan: of the main kernel, of a problem whose lengths are known (Work::exact).
BwdEstimate bwd_estimate(const BwdPlan& plan, const Problem& problem);

}  // namespace fa3::sm90
