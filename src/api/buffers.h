// SPDX-License-Identifier: BSD-3-Clause
// buffers.h — what a run checks and a plan cannot: addresses, and the values of cu_seqlens and
// seqused.
#pragma once

#include <cstddef>

#include "api/args.h"
#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// The addresses of args, which make_problem turned into `problem`. Reads cu_seqlens and seqused
// where they are in host memory, writes nothing.
Result<Buffers> make_buffers(const Args& args, const Problem& problem, bool on_host = true);

// The caller's workspace holds the bytes that the plan needs and shares none of them with a tensor.
Status check_workspace(const Args& args, const void* workspace, size_t given_bytes,
                       size_t needed_bytes);

}  // namespace fa3
