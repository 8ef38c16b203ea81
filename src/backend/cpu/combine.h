// SPDX-License-Identifier: BSD-3-Clause
// combine.h — fa3_combine on the processor, in FP32: the formula and its rules are combine.h's of
// the C interface.
#pragma once

#include "core/device.h"
#include "core/executor.h"
#include "core/problem.h"

namespace fa3::cpu {

void combine(const Problem& problem, const Buffers& buffers, Isa isa, const Executor& executor);

}  // namespace fa3::cpu
