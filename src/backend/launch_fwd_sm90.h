// SPDX-License-Identifier: BSD-3-Clause
// launch_fwd_sm90.h — the forward kernel of Hopper on a machine: a GPU or the simulator.
#pragma once

#include "backend/machine.h"
#include "core/problem.h"
#include "plan/fwd_sm90.h"

namespace fa3 {

Program fwd_program(const FwdSm90Plan& plan);

// UNSUPPORTED for a tensor at an address that TMA does not take, and that the kernel would read or
// write.
Status check_addresses(const Problem& problem, const Buffers& buffers);

// Puts the kernel on the stream. buffers were validated against problem, which has queries, and
// passed check_addresses; their addresses are the machine's.
Status launch_fwd_sm90(Machine& machine, StreamRef stream, const Problem& problem,
                       const FwdSm90Plan& plan, const Buffers& buffers, void* workspace);

}  // namespace fa3
