// SPDX-License-Identifier: BSD-3-Clause
// kernels.h — the planner of Hopper: which kernels compute a problem, one after another.
#pragma once

#include "core/device.h"
#include "core/problem.h"
#include "core/status.h"
#include "plan/steps.h"

namespace fa3::sm90 {

// UNSUPPORTED with the reason where there are none.
Result<KernelPlan> plan_kernels(const Problem& problem, const DeviceInfo& gpu);
// With kernels that were compiled ahead only (ahead.h).
Result<KernelPlan> plan_ahead(const Problem& problem, const DeviceInfo& gpu);

}  // namespace fa3::sm90
