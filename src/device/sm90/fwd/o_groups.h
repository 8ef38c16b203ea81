// SPDX-License-Identifier: BSD-3-Clause
// o_groups.h — a thread's O in groups of accumulators that are read and written at once, where each
// thread has places of its own (parked.h, parts.h): a thread's next group is kWgThreads groups on.
#pragma once

#include "device/ptx/registers.h"
#include "device/ptx/vec.h"
#include "device/sm90/fwd/config.h"
#include "device/types.h"

namespace fa3::sm90 {

template <FwdConfig kCfg>
struct OGroups {
  static constexpr int kGroup = 4;  // two accumulators of each row
  static constexpr int kGroups = kCfg.tile.head_dim_v / 2 / kGroup;
  using Group = ptx::Vec<float, kGroup>;
  using OAcc = ptx::Acc<kCfg.tile.head_dim_v>;

  FA3_DEV static Group group(const OAcc& o, int g) {
    Group x;
    FA3_UNROLL
    for (int i = 0; i < kGroup; ++i) x[i] = o[kGroup * g + i];
    return x;
  }
};

}  // namespace fa3::sm90
