// SPDX-License-Identifier: BSD-3-Clause
// plan.h — the kernel that appends to a cache before attention, and its grid.
#pragma once

#include <cstdint>
#include <string>

#include "core/device.h"
#include "core/json.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/sm90/append/config.h"
#include "plan/append.h"
#include "plan/plan_kernel.h"
#include "runtime/program.h"

namespace fa3::sm90 {

// Rows of one of the tensors as the kernel cuts them.
struct AppendTasks {
  int64_t pieces = 0;  // of a row of a head
  int64_t warps = 0;   // of a row of all heads
  int64_t tasks = 0;   // of all rows
};

struct AppendPlan : PlainKernel {
  AppendConfig config;
  Append append;  // where lengths and queries lie in the workspace
  AppendTasks k, v, q;
  int groups = 1;  // of 32 pieces of a row that a warp has
  uint32_t ctas = 1;
};

// UNSUPPORTED where the kernel cannot count the tasks.
Result<AppendPlan> make_append_plan(const Append& append, const Problem& problem,
                                    const DeviceInfo& gpu);

// See plan/plan_kernel.h.
Program program_of(const AppendPlan& plan);
LaunchShape shape_of(const AppendPlan& plan);
std::string name_of(const AppendPlan& plan);
void describe(const AppendPlan& plan, const Problem& problem, Json& json);

// The kernel as C++ names it.
std::string append_expression(const AppendConfig& config);

}  // namespace fa3::sm90
