// SPDX-License-Identifier: BSD-3-Clause
// decode.h — 8-bit inputs on the processor: q, k and v become FP32 tensors in the workspace, and
// what computes sees an FP32 problem. Code · scale + offset is rounded once.
#pragma once

#include <cstddef>

#include "core/check_scales.h"
#include "core/executor.h"
#include "core/problem.h"

namespace fa3::cpu {

// One row of codes of a head, from element `at` of `data` on. 16 bits stay what they are.
void decode_row(fa3_dtype dtype, const void* data, int64_t at, const RowScales& scales,
                int64_t columns, float* out);

// The problem that is computed after decoding: q dense and FP32, without scales. K and V are
// decoded tile by tile.
Problem decoded(const Problem& problem);

// Bytes that decode() writes.
size_t decoded_bytes(const Problem& problem);

// Decodes the rows of q that count into workspace, which is aligned to kWorkspaceAlign; the buffers
// of decoded(problem).
Buffers decode(const Problem& problem, const Buffers& buffers, std::byte* workspace,
               const Executor& executor);

}  // namespace fa3::cpu
