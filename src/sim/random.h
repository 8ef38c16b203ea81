// SPDX-License-Identifier: BSD-3-Clause
// random.h — the generator behind every choice of the simulator: small, fast, the same everywhere.
#pragma once

#include "device/types.h"

namespace fa3::sim {

// SplitMix64: one step mixes a counter; good enough to seed and to schedule.
class Random {
 public:
  explicit Random(u64 seed) : state_(seed) {}

  u64 next() {
    u64 z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  // Uniform in [0, n), n ≥ 1; the bias of 2^-32·n does not matter here.
  u32 below(u32 n) { return static_cast<u32>(((next() >> 32) * n) >> 32); }
  bool one_in(u32 n) { return n != 0 && below(n) == 0; }  // 0 = never

 private:
  u64 state_;
};

}  // namespace fa3::sim
