// SPDX-License-Identifier: BSD-3-Clause
// wgmma.h — how a wgmma takes effect.
#pragma once

#include "sim/worker.h"

namespace fa3::sim {

// Schedules the warpgroup's next wgmma that all lanes have posted.
void schedule(Warpgroup& group);
// Reads the operands from shared memory as it is now, checks them, and accumulates.
void execute(Warpgroup& group, const WgmmaOp& op, u64 number);

}  // namespace fa3::sim
