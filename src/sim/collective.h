// SPDX-License-Identifier: BSD-3-Clause
// collective.h — the rendezvous of lanes in a warp instruction.
#pragma once

#include "sim/worker.h"

namespace fa3::sim {

// What one lane brings to a warp instruction.
struct Lane {
  const char* op;
  Where where;
  u32 mask;
  bool aligned;  // .aligned: every lane must stand at the same line
  u64 key = 0;   // immediate operands, equal in all lanes
};

// Suspends the thread until all lanes of the mask have come; the last one runs `act`, once, with the
// operands of all lanes (null outside the mask), before the others go on.
void gather(Thread& thread, const Lane& lane, void* operand,
            const std::function<void(void* const* operands)>& act);

}  // namespace fa3::sim
