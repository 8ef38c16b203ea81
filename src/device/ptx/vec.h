// SPDX-License-Identifier: BSD-3-Clause
// vec.h — a few neighbouring values that one memory access moves, and the integers that carry them.
#pragma once

#include "device/types.h"

namespace fa3::ptx {

// N values, aligned as a whole: one access of 8 or 16 bytes, or the registers of a matrix load.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];

  FA3_HD constexpr T& operator[](int i) { return v[i]; }
  FA3_HD constexpr const T& operator[](int i) const { return v[i]; }
};

// A struct of integers, word by word.
template <int N>
struct Words {
  i32 word[N];
};

template <class To, class From>
FA3_HD constexpr To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits_as: both types must have the same size");
  return __builtin_bit_cast(To, from);
}

// One access of one thread moves 1, 2, 4, 8 or 16 bytes.
template <class T>
inline constexpr bool kIsAccess = sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 ||
                                  sizeof(T) == 8 || sizeof(T) == 16;

}  // namespace fa3::ptx
