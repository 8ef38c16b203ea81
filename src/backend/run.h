// SPDX-License-Identifier: BSD-3-Clause
// run.h — runs a plan on its backend.
#pragma once

#include <cstddef>

#include "core/executor.h"
#include "core/problem.h"
#include "plan/plan.h"

namespace fa3 {

// buffers were validated against plan.problem; workspace holds plan.workspace_bytes. Throws Error.
void run(const Plan& plan, const Buffers& buffers, std::byte* workspace, const Executor& executor);

}  // namespace fa3
