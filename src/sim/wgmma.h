// SPDX-License-Identifier: BSD-3-Clause
// wgmma.h — one wgmma when it takes effect.
#pragma once

#include "sim/worker.h"

namespace fa3::sim {

// Plans the next wgmma of the warpgroup that all lanes have posted.
void schedule(Warpgroup& group);
// Reads the operands from shared memory as it is now, checks them, and adds the product.
void execute(Warpgroup& group, const WgmmaOp& op, u64 number);

}  // namespace fa3::sim
