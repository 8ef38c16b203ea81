// SPDX-License-Identifier: BSD-3-Clause
// run.h — runs a plan on its backend.
#pragma once

#include <cstddef>

#include "backend/machine.h"
#include "core/executor.h"
#include "core/problem.h"
#include "plan/plan.h"

namespace fa3 {

// buffers were validated against plan.problem; workspace holds plan.workspace_bytes. Host backends
// return when the outputs are written and throw Error.
void run(const Plan& plan, const Buffers& buffers, std::byte* workspace, const Executor& executor);

// Nothing is launched for such a problem: there are no queries. Packed queries may have rows
// without a single sequence: they are outputs, too.
inline bool nothing_to_launch(const Problem& p) {
  return (p.batch == 0 && !p.q.packed) || p.heads_q == 0 || p.q.rows == 0;
}

// Backends cuda and sim: kernels on a machine. cuda returns when they are on the stream.
Status run(const Plan& plan, const Buffers& buffers, std::byte* workspace, Machine& machine,
           StreamRef stream);

}  // namespace fa3
