// SPDX-License-Identifier: BSD-3-Clause
// transpose.h — values of four lanes exchanged, so that each has those of one index.
#pragma once

#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/types.h"

namespace fa3 {

// Of four lanes kApart apart: value k of the q-th becomes value q of the k-th. All lanes of a warp.
template <u32 kApart, class T>
FA3_DEV void transpose_fours(T (&values)[4]) {
  const u32 lane = ptx::lane_index() / kApart;
  FA3_UNROLL
  for (u32 m = 1; m < 4; m *= 2) {
    const bool upper = (lane & m) != 0;
    FA3_UNROLL
    for (u32 k = 0; k < 4; ++k) {
      if ((k & m) != 0) continue;
      const T got = ptx::shfl_xor(upper ? values[k] : values[k | m], kApart * m);
      if (upper)
        values[k] = got;
      else
        values[k | m] = got;
    }
  }
}

}  // namespace fa3
