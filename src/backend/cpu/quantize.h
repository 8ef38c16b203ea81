// SPDX-License-Identifier: BSD-3-Clause
// quantize.h — fa3_quantize on the processor, in FP32: the formula and its rules are quantize.h's
// of the C interface.
#pragma once

#include <cstddef>

#include "core/executor.h"
#include "core/problem.h"

namespace fa3::cpu {

// Bytes that quantize() of this problem needs on `threads` threads.
size_t quantize_workspace_bytes(const Problem& problem, int threads);

// Writes scale and offset whole, and the codes of rows that count. workspace is aligned to
// kWorkspaceAlign.
void quantize(const Problem& problem, const Buffers& buffers, std::byte* workspace,
              const Executor& executor);

}  // namespace fa3::cpu
