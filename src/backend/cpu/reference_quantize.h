// SPDX-License-Identifier: BSD-3-Clause
// reference_quantize.h — fa3_quantize in FP64, by the formula: what cpu::quantize is checked
// against.
#pragma once

#include "core/executor.h"
#include "core/problem.h"

namespace fa3::reference {

// Writes scale and offset whole, and the codes of rows that count. Needs no workspace: each row is
// turned as often as it is asked for.
void quantize(const Problem& problem, const Buffers& buffers, const Executor& executor);

}  // namespace fa3::reference
