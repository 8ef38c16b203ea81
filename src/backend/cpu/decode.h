// SPDX-License-Identifier: BSD-3-Clause
// decode.h — 8-bit inputs on the processor: q, k and v become FP32 tensors in the workspace, and
// what computes sees an FP32 problem. Code · scale + offset is rounded once.
#pragma once

#include <cstddef>

#include "core/executor.h"
#include "core/problem.h"

namespace fa3::cpu {

// The problem that is computed after decoding: q, k, v dense and FP32, without scales.
Problem decoded(const Problem& problem);

// Bytes that decode() writes.
size_t decoded_bytes(const Problem& problem);

// Decodes the rows that count into workspace, which is aligned to kWorkspaceAlign; the buffers of
// decoded(problem).
Buffers decode(const Problem& problem, const Buffers& buffers, std::byte* workspace,
               const Executor& executor);

}  // namespace fa3::cpu
