// SPDX-License-Identifier: BSD-3-Clause
// launch.h — launches the kernels of a plan on a GPU or in the simulator. Each kernel's
// arguments are filled in by its own launch/*.h.
#pragma once

#include "core/problem.h"
#include "plan/plan.h"
#include "runtime/gpu_runtime.h"

namespace fa3 {

// UNSUPPORTED for a tensor that a kernel would read or write at an address that it does not
// accept.
Status check_addresses(const Plan& plan, const Buffers& buffers);

// Puts the kernels on the stream, one after another. buffers were validated against the plan's
// problem, which has rows, and passed check_addresses; their addresses are in the runtime's memory.
// workspace: aligned.
Status launch(const Plan& plan, GpuRuntime& runtime, StreamRef stream, const Buffers& buffers,
              std::byte* workspace);

}  // namespace fa3
