// SPDX-License-Identifier: BSD-3-Clause
// cpu_explain.h — the cpu backend's plan in fa3_explain()'s JSON: member "cpu".
#pragma once

#include "core/json.h"
#include "core/problem.h"
#include "plan/cpu/cpu_plan.h"

namespace fa3 {

void describe(const CpuPlan& plan, const Problem& problem, Json& json);

}  // namespace fa3
