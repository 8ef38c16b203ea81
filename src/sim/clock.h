// SPDX-License-Identifier: BSD-3-Clause
// clock.h — vector clocks over the agents of a cluster: its threads, one agent per warpgroup for
// wgmma, and slots for TMA operations. A clock is a row of ticks, padded to a multiple of 16.
#pragma once

#include "device/types.h"
#include "sim/simd.h"

namespace fa3::sim {

using Tick =
    u32;  // an agent's own time; 0 = before everything. 2^32 releases per thread are enough

// One access: which agent, at which of its ticks.
struct Epoch {
  u32 agent = 0;
  Tick tick = 0;  // 0 = no access

  explicit operator bool() const { return tick != 0; }
  bool operator==(const Epoch& other) const = default;
  // Did it happen before the event whose clock is `view`?
  bool before(const Tick* view) const { return tick <= view[agent]; }
};

inline void join(Tick* into, const Tick* from, u32 width) { simd().join(into, from, width); }

}  // namespace fa3::sim
