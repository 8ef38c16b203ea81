// SPDX-License-Identifier: BSD-3-Clause
// reference_combine.h — fa3_combine in FP64, by the formula: what other backends are checked
// against.
#pragma once

#include "core/executor.h"
#include "core/problem.h"

namespace fa3::reference {

void combine(const Problem& problem, const Buffers& buffers, const Executor& executor);

}  // namespace fa3::reference
