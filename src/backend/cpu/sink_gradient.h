// SPDX-License-Identifier: BSD-3-Clause
// sink_gradient.h — the pass of the backward that makes dsinks.
#pragma once

#include <cstdint>

#include "backend/cpu/backward_head.h"
#include "core/executor.h"

namespace fa3::cpu {

// A task for each query head; 0 where dsinks is absent.
int64_t sink_gradient_tasks(const Problem& problem);

void sink_gradient(const Backward& run, const Executor& executor, Progress progress);

}  // namespace fa3::cpu
