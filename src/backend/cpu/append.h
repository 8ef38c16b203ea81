// SPDX-License-Identifier: BSD-3-Clause
// append.h — new keys and values into a cache, on the processor: both host backends' step before
// attention.
#pragma once

#include <cstddef>

#include "core/executor.h"
#include "core/problem.h"
#include "plan/append.h"

namespace fa3 {

// Writes new rows to k and v, and lengths and rotated queries to the workspace, which is aligned.
// In FP64.
void append(const Problem& problem, const Append& plan, const Buffers& buffers,
            std::byte* workspace, const Executor& executor);

}  // namespace fa3
