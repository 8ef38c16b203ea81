// SPDX-License-Identifier: BSD-3-Clause
// ahead.h — plans of kernels that were compiled ahead, as for the simulator: fewer and more general
// ones than the planner chooses for a GPU, where any variant is compiled when it is first used.
#pragma once

#include <optional>
#include <vector>

#include "core/device.h"
#include "core/problem.h"
#include "core/status.h"
#include "plan/sm90/bwd/plan.h"
#include "plan/sm90/decode/plan.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/quantize/plan.h"

namespace fa3::sm90 {

// UNSUPPORTED with the reason where none of them computes the problem.
Result<FwdPlan> ahead_fwd_plan(const Problem& problem, const DeviceInfo& device);
// Nothing where the forward computes the problem.
std::optional<DecodeConfig> ahead_decode_config(const FwdPlan& forward, const Problem& problem,
                                                const DeviceInfo& device);
// Whether that kernel can append, and was compiled ahead so.
bool ahead_appends(const DecodeConfig& config, const Problem& problem);
Result<std::vector<BwdPlan>> ahead_bwd_plans(const Problem& problem, const DeviceInfo& device);
Result<std::vector<QuantizePlan>> ahead_quantize_plans(const Problem& problem,
                                                       const DeviceInfo& device);

}  // namespace fa3::sm90
