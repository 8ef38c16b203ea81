// SPDX-License-Identifier: BSD-3-Clause
// forward.h — a forward plan in the simulator, on memory of the caller's.
#pragma once

#include "backend/sim/machine.h"
#include "core/problem.h"
#include "plan/plan.h"

namespace fa3::sim {

// Kernels may touch the elements of the tensors and the plan's workspace, and nothing else. One run
// of a machine at a time.
Status forward(SimMachine& machine, const Plan& plan, const Buffers& buffers, std::byte* workspace);

}  // namespace fa3::sim
