// SPDX-License-Identifier: BSD-3-Clause
// plan.h — what a run will do: backend, tiles, tasks, workspace. make_plan is a pure function of
// its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/device.h"
#include "core/problem.h"
#include "core/status.h"
#include "plan/cpu_plan.h"
#include "plan/fwd_sm90.h"

namespace fa3 {

// Callers may pass a workspace of any alignment; backends get one of this, a cache line.
inline constexpr size_t kWorkspaceAlign = 64;

struct Plan {
  Problem problem;
  fa3_backend backend = FA3_BACKEND_AUTO;  // resolved: never AUTO
  std::string why;                         // one sentence: why this backend
  int threads = 1;                         // scratch slots; most tasks that run at once
  size_t workspace_bytes = 0;              // kWorkspaceAlign − 1 for alignment included
  CpuPlan cpu;                             // backend cpu only
  FwdSm90Plan fwd;                         // backends cuda and sim
};

Result<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

}  // namespace fa3
