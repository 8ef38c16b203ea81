// SPDX-License-Identifier: BSD-3-Clause
// cpu_plan.h — tiles, tasks and scratch of the cpu backend, as pure functions of problem, instruction set and threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"
#include "core/problem.h"

namespace fa3 {

struct CpuPlan {
  size_t workspace_bytes = 0;
};

CpuPlan make_cpu_plan(const Problem& problem, Isa isa, int threads);

}  // namespace fa3
