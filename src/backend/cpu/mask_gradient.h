// SPDX-License-Identifier: BSD-3-Clause
// mask_gradient.h — the pass of the backward that makes dattn_mask.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/backward_head.h"
#include "core/executor.h"

namespace fa3::cpu {

// Tiles of dattn_mask; 0 where it is absent.
int64_t mask_gradient_tasks(const Problem& problem, const CpuPlan& plan);

void mask_gradient(const Backward& run, std::byte* workspace, const Executor& executor,
                   Progress progress);

}  // namespace fa3::cpu
