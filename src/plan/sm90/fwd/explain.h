// SPDX-License-Identifier: BSD-3-Clause
// explain.h — the Hopper forward in fa3_explain()'s JSON: members "sm90" and "estimate".
#pragma once

#include "core/json.h"
#include "core/problem.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/work.h"

namespace fa3::sm90 {

// The row, the rejected rows and why, configuration, grid.
void describe(const FwdPlan& plan, const Problem& problem, Json& json);

// What the roofline says of it.
void describe_estimate(const FwdPlan& plan, const Problem& problem, const Work& work, Json& json);

}  // namespace fa3::sm90
