// SPDX-License-Identifier: BSD-3-Clause
// random_sign.h — the signs of incoherent processing: a stream that any of its numbers can be taken
// from.
#pragma once

#include "device/types.h"

namespace fa3 {

// Number `index` of the SplitMix64 stream that starts at seed, as a sign: its top bit.
// Source: Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014.
FA3_HD constexpr float random_sign(u64 seed, i64 index) {
  u64 z = seed + 0x9e3779b97f4a7c15u * static_cast<u64>(index + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return z >> 63 != 0 ? -1.0f : 1.0f;
}

}  // namespace fa3
