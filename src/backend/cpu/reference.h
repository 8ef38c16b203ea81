// SPDX-License-Identifier: BSD-3-Clause
// reference.h — attention in FP64 by simple loops: what every other backend is checked against.
// Includes nothing of src/device, so that a mistake there cannot hide here.
#pragma once

#include <cstddef>

#include "core/executor.h"
#include "core/problem.h"

namespace fa3::reference {

// Bytes that forward() or backward() of this problem need on `threads` threads.
size_t workspace_bytes(const Problem& problem, int threads);

// workspace: any alignment. The backward recomputes P from q, k, v in FP64 and does not read o and
// lse.
void forward(const Problem& problem, const Buffers& buffers, std::byte* workspace,
             const Executor& executor);
void backward(const Problem& problem, const Buffers& buffers, std::byte* workspace,
              const Executor& executor);

}  // namespace fa3::reference
