// SPDX-License-Identifier: BSD-3-Clause
// check_lengths.h — the values that cut sequences, which kernels of a GPU only clamp.
#pragma once

#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// The values of cu_seqlens, seqused, page_table, kv_batch_idx and kv_begin, which buffers has in
// host memory: INVALID_ARGUMENT names the first bad one.
Status check_lengths(const Problem& problem, const Buffers& buffers);

}  // namespace fa3
