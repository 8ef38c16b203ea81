// SPDX-License-Identifier: BSD-3-Clause
// ring.h — a cursor in a pipeline of stages: which one is next, and which phase of its barriers.
#pragma once

#include "device/types.h"

namespace fa3 {

// A consumer starts as Ring<S>{} and waits on `full[stage]` for `phase`; a producer starts as
// Ring<S>::producer() and waits on `empty[stage]`: in a fresh barrier the phase before the first
// counts as complete, so its first round does not block.
template <int kStages>
struct Ring {
  static_assert(kStages >= 1, "Ring: at least one stage");

  u32 stage = 0;
  u32 phase = 0;

  FA3_HD static constexpr Ring producer() { return {0, 1}; }

  FA3_HD constexpr void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
  // n ≤ kStages.
  FA3_HD constexpr void skip(u32 n) {
    stage += n;
    if (stage >= kStages) {
      stage -= kStages;
      phase ^= 1;
    }
  }
  FA3_HD constexpr Ring next() const {
    Ring ring = *this;
    ring.advance();
    return ring;
  }
  FA3_HD constexpr Ring before() const {
    return stage > 0 ? Ring{stage - 1, phase} : Ring{kStages - 1, phase ^ 1};
  }
};

}  // namespace fa3
