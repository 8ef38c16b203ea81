// SPDX-License-Identifier: BSD-3-Clause
// collective.h — the rendezvous of lanes in a warp instruction.
#pragma once

#include "sim/worker.h"

namespace fa3::sim {

// One lane's part in a warp instruction.
struct Lane {
  const char* op;
  Where where;
  u32 mask;
  bool aligned;  // .aligned: every lane must be at the same line
  u64 key = 0;   // immediate operands, equal in all lanes
};

// What the last lane does, with the operands of all lanes (null outside the mask).
struct Action {
  void* context;
  void (*run)(void* context, void* const* operands);
};
void gather_lanes(Thread& thread, const Lane& lane, void* operand, Action act);

// Suspends the thread until all lanes of the mask have arrived; the last one runs act(operands),
// once, before the others resume.
template <class Act>
void gather(Thread& thread, const Lane& lane, void* operand, Act act) {
  gather_lanes(thread, lane, operand, {&act, [](void* context, void* const* operands) {
                                         (*static_cast<Act*>(context))(operands);
                                       }});
}

}  // namespace fa3::sim
