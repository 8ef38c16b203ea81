// SPDX-License-Identifier: BSD-3-Clause
// divider.h — division by a number that the host knows, as a product and a shift: the GPU has no
// instruction that divides integers, and what stands in for it takes 20.
#pragma once

#include "device/types.h"

namespace fa3 {

// Exact for dividends below 2^31.
struct Divider {
  u32 divisor = 1;
  u32 factor = u32{1} << 31;  // 2^shift / divisor, rounded up
  u32 shift = 31;

  // divisor: from 1 to 2^31.
  static constexpr Divider by(u32 divisor) {
    Divider d{divisor, 0, 31};
    while ((u64{1} << (d.shift - 31)) < divisor) ++d.shift;
    d.factor = static_cast<u32>(((u64{1} << d.shift) + divisor - 1) / divisor);
    return d;
  }
  FA3_HD constexpr i32 quotient(i32 x) const {
    return static_cast<i32>((u64{static_cast<u32>(x)} * factor) >> shift);
  }
  FA3_HD constexpr i32 remainder(i32 x) const {
    return x - quotient(x) * static_cast<i32>(divisor);
  }
};

}  // namespace fa3
